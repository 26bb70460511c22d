//! The kind `mask`: the class of each pixel of an `image` column's picture.

use serde::{Deserialize, Serialize};

use super::{ColumnKind, Kind, kind::{keys, followed_picture}};
use spdl_types::{SampleShape, DType};
use crate::KeyProblem;

/// The class that by custom means "none of the classes", as in Pascal VOC.
const DEFAULT_IGNORE_INDEX: u16 = 255;

keys! {
    /// The keys of a `mask` column in a job file.
    MaskKeys {
        /// For mask: the name of the `image` column that the mask is of. Required.
        follows: Option<String>,
        /// For mask: the class of the pixels that are beyond the picture, where it was padded or turned. Default: 255.
        ignore_index: Option<u16>,
    }
}

/// The class of each pixel of a picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskColumn {
    /// Name of the `image` column that it is of.
    pub follows: String,
    /// The class of pixels that are beyond the picture.
    pub ignore_index: u16,
    /// Height and width: those of the column that it follows.
    pub size: [u32; 2],
}

impl Kind for MaskColumn {
    const NAME: &'static str = "mask";
    const EXAMPLE: &'static str = "follows = \"image\"";
    type Keys = MaskKeys;

    fn read(keys: &MaskKeys) -> Result<Self, KeyProblem> {
        let Some(follows) = keys.follows.clone() else {
            return Err(("follows", "is missing; write the name of the image column that the mask is of".to_owned()));
        };
        Ok(Self { follows, ignore_index: keys.ignore_index.unwrap_or(DEFAULT_IGNORE_INDEX), size: [0; 2] })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        let image = followed_picture(&self.follows, followed)?;
        if image.max_pixels().is_some() {
            let problem = format!("is `{}`, whose pictures differ in size, and masks have one size", self.follows);
            return Err(("follows", problem));
        }
        self.size = image.size;
        Ok(())
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8, DType::U16]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(self.size.to_vec())
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        if dtype == DType::U8 && self.ignore_index > 255 {
            return Err(("ignore_index", format!("is {}, more than u8 can hold; add dtype = \"u16\"", self.ignore_index)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, JobError};

    const MASK: &str = "[[column]]\nname = \"mask\"\nfrom = \"seg.png\"\ndecode = \"mask\"\nfollows = \"image\"\n";

    fn job(columns: &str) -> Result<Job, JobError> {
        crate::testing::job_of(&format!(
            "{columns}[[column]]\nname = \"image\"\nfrom = \"jpg\"\n\
             decode = \"image\"\nops = [{{ random_resized_crop = [32, 48] }}]\nlayout = \"nchw\"\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
        ))
    }

    #[test]
    fn a_mask_is_as_large_as_the_picture_that_it_follows_and_survives_storage() {
        let job = job(&format!("{MASK}ignore_index = 0\n")).unwrap();
        assert_eq!((job.columns[0].sample_shape(), job.columns[0].dtype), (Some(vec![32, 48]), DType::U8));
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
        let other = self::job(MASK).unwrap();
        assert_ne!(other.fingerprint(), job.fingerprint());
    }

    #[test]
    fn a_function_of_a_mask_gets_its_shape() {
        let job = job(&format!("{MASK}transform = \"a:b\"\n")).unwrap();
        assert_eq!(job.columns[0].sample_shape(), Some(vec![32, 48]));
    }

    #[test]
    fn what_a_mask_cannot_follow_is_named() {
        for (from, to, expected) in [
            ("follows = \"image\"", "", "column `mask`: `follows` is missing; write the name of the image column"),
            ("\"image\"", "\"picture\"", "column `mask`: `follows` is `picture`, and the job has no such column"),
            ("\"image\"", "\"label\"", "column `mask`: `follows` is `label`, a column of decode = \"int\"; it has to be of decode = \"image\""),
            ("\"image\"", "\"mask\"", "column `mask`: `follows` is `mask`, a column of decode = \"mask\""),
            ("\"image\"", "\"image\"\nignore_index = 256", "column `mask`: `ignore_index` is 256, more than u8 can hold; add dtype = \"u16\""),
            ("\"image\"", "\"image\"\nignore_index = 65536", "ignore_index expects a whole number from 0 to 65535"),
            ("\"image\"", "\"image\"\ndtype = \"i64\"", "`dtype` cannot be i64 for decode = \"mask\""),
        ] {
            let error = job(&MASK.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        assert!(job(&MASK.replacen("\"image\"", "\"image\"\nignore_index = 256\ndtype = \"u16\"", 1)).is_ok());
    }

    #[test]
    fn a_mask_of_a_peer_is_checked_like_one_of_a_file() {
        let mut job = job(MASK).unwrap();
        let ColumnKind::Mask(mask) = &mut job.columns[0].kind else { panic!("{job:?}") };
        mask.size = [u32::MAX; 2];
        let error = job.check().unwrap_err().to_string();
        assert!(error.contains("column `mask`: `follows` is `image`, which the column does not fit"), "{error}");
    }
}
