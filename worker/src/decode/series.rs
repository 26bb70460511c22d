//! Columns with `deltas`: the values of several records of the series that a sample's record is of. Frames of videos that records
//! name are decoded together.

use super::cause::ValueResult;
use super::{
    BadSampleProblem, DecodeScratch, Decoder, FieldTarget, Prepared, SampleKey, column::ColumnSample,
    read_video::FrameChoice, record::SampleRecord,
};

impl Decoder {
    /// Returns the fields of which columns have the values of several records of a series, with the places of these.
    pub(crate) fn series_fields(&self) -> impl Iterator<Item = (&str, &[i32])> {
        let of_series = self.inner.prepared().map(|(_, prepared)| &prepared.column);
        let of_series = of_series.filter(|column| !column.value.deltas.is_empty());
        of_series.flat_map(|column| column.from.iter().map(|name| (name.as_str(), &column.value.deltas[..])))
    }

    /// Decodes the value of a column, or its values of several records.
    pub(super) fn decode_value(
        &self,
        prepared: &Prepared,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        let deltas = &prepared.column.value.deltas;
        if let Some(wanted) = prepared.decoder.frame_choice().and_then(FrameChoice::series)
            && let Some((field, frames)) = record.frames(wanted)
        {
            let problem =
                |problem: &String| BadSampleProblem::Frame { field: field.to_owned(), problem: problem.clone() };
            let content = frames.as_ref().map_err(problem)?;
            let (seed, resources) = (self.inner.seed, &self.resources);
            let sample = ColumnSample { field, content, seed, key, record, resources, scratch };
            return prepared.decoder.decode_series(sample, target);
        }
        if deltas.is_empty() {
            return self.decode_one(prepared, key, record, scratch, target);
        }
        let place = target.fixed();
        let bytes = place.len() / deltas.len();
        for (delta, place) in deltas.iter().zip(place.chunks_exact_mut(bytes)) {
            let fields = record.fields_at(*delta);
            let mut record = SampleRecord::new(&fields, record.sample());
            self.decode_one(prepared, key, &mut record, scratch, &mut FieldTarget::Fixed(place))?;
        }
        Ok(())
    }
}
