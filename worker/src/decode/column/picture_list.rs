//! Lists of pictures in a column of the kind `image`: each picture is decoded as a single one is, with draws of its
//! own.

use bytes::Bytes;
use spdl_job::PictureList;
use spdl_shard::format::FieldValue;

use super::{
    ColumnDecoder, ColumnSample, FieldTarget,
    image::{ImageColumnDecoder, PictureFile},
};
use crate::decode::cause::{BadSampleProblem, ValueResult};

/// Decodes lists of pictures, one after the other.
pub(super) struct PictureListDecoder {
    each: ImageColumnDecoder,
    list: PictureList,
}

impl PictureListDecoder {
    pub(super) const fn new(each: ImageColumnDecoder, list: PictureList) -> Self {
        Self { each, list }
    }
}

impl ColumnDecoder for PictureListDecoder {
    fn decode_value(&self, sample: ColumnSample<'_, '_, FieldValue>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (sample, value) = sample.replace(());
        self.decode_files(sample, &value.into_files(), target)
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (sample, content) = sample.replace(());
        self.decode_files(sample, &[Some(content.into_file())], target)
    }
}

impl PictureListDecoder {
    fn decode_files(
        &self,
        mut sample: ColumnSample<'_, '_, ()>,
        files: &[Option<Bytes>],
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        let (list, pictures) = (self.list, files.len());
        if !list.allows(pictures) {
            return Err(BadSampleProblem::PictureCount { field: sample.field.to_owned(), pictures, list });
        }
        let mut made = match list {
            PictureList::Exactly(_) => Vec::new(),
            PictureList::UpTo(_) => vec![0; pictures * self.each.bytes()],
        };
        let beside_bytes = made.len() as u64;
        let out = match list {
            PictureList::Exactly(_) => target.fixed(),
            PictureList::UpTo(_) => &mut made[..],
        };
        for (number, (file, out)) in (0..).zip(files.iter().zip(out.chunks_exact_mut(self.each.bytes()))) {
            self.decode_file(&mut sample, (number, file.as_ref()), beside_bytes, out)
                .map_err(|problem| BadSampleProblem::InList { number, problem: Box::new(problem) })?;
        }
        if matches!(list, PictureList::UpTo(_)) {
            *target.ragged() = made.into();
        }
        Ok(())
    }

    /// Decodes picture number `number` of the list into its place.
    fn decode_file(
        &self,
        sample: &mut ColumnSample<'_, '_, ()>,
        (number, file): (u32, Option<&Bytes>),
        beside_bytes: u64,
        out: &mut [u8],
    ) -> ValueResult {
        let ColumnSample { field, seed, key, record, resources, scratch, .. } = sample;
        let bytes = file.ok_or_else(|| BadSampleProblem::Null { field: (*field).to_owned() })?;
        let plan = |size| self.each.picture().plan_of_part(size, (*seed, *key), number, record);
        self.each.write(PictureFile { field, bytes, beside_bytes }, plan, (*resources, &mut **scratch), out)
    }
}
