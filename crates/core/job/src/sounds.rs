//! The datasets whose recordings a job's operations take, beside those whose samples it delivers.

use super::{
    Column, ColumnKind, DecodeFile, Job, JobError, JobFile, SoundDataset, SoundOp, check::wrong, decoded_columns,
};

impl JobFile {
    /// Iterates over the datasets whose recordings operations take.
    pub fn sound_datasets(&mut self) -> impl Iterator<Item = &mut SoundDataset> {
        let ops = self.column.iter_mut().flat_map(|column| match &mut column.decode {
            DecodeFile::Audio(keys) => &mut keys.ops[..],
            _ => &mut [],
        });
        ops.filter_map(SoundOp::dataset_mut)
    }
}

impl Job {
    /// Iterates over the datasets whose recordings operations take; one that several take comes as often.
    pub fn sound_datasets(&self) -> impl Iterator<Item = &SoundDataset> {
        let ops = decoded_columns(&self.columns).flat_map(|column| match &column.kind {
            ColumnKind::Audio(audio) => &audio.ops[..],
            _ => &[],
        });
        ops.filter_map(SoundOp::dataset)
    }

    /// Checks that it is known which datasets these are.
    pub(crate) fn check_sound_datasets(&self) -> Result<(), JobError> {
        let is_unknown = |dataset: &&SoundDataset| dataset.fingerprint.is_none() || dataset.samples.unwrap_or(0) == 0;
        match self.sound_datasets().find(is_unknown) {
            None => Ok(()),
            Some(dataset) => {
                let problem = format!(
                    "name the dataset `{}`, which was not opened: `spdl-ctl job submit` does that",
                    crate::redact(&dataset.url)
                );
                Err(wrong(&self.name, "`ops`", problem))
            }
        }
    }

    /// Returns the columns without what does not decide their values: where the datasets lie whose recordings operations take.
    pub(crate) fn columns_anywhere(&self) -> Vec<Column> {
        let mut columns = self.columns.clone();
        for column in &mut columns {
            forget_places(column);
            if let ColumnKind::Returned(returned) = &mut column.kind {
                returned.call.columns.iter_mut().for_each(forget_places);
            }
        }
        columns
    }
}

fn forget_places(column: &mut Column) {
    if let ColumnKind::Audio(audio) = &mut column.kind {
        audio.ops.iter_mut().filter_map(SoundOp::dataset_mut).for_each(|dataset| dataset.url.clear());
    }
}

#[cfg(test)]
mod tests {
    use spdl_order::DatasetFacts;
    use spdl_types::Fingerprint;

    use super::*;
    use crate::SoundStep;

    const COLUMN: &str = "[[column]]\nname = \"wave\"\nfrom = \"flac\"\ndecode = \"audio\"\nrate = 16000\n";

    fn file(ops: &str) -> JobFile {
        let text = format!("name = \"a\"\ndataset = \"d\"\nglobal_batch = 8\n{COLUMN}ops = [{ops}]\n");
        JobFile::parse(&text, "job.toml").unwrap_or_else(|error| panic!("{ops}: {error}"))
    }

    fn frozen(ops: &str, fingerprint: u128) -> Result<Job, JobError> {
        let mut file = file(ops);
        for dataset in file.sound_datasets() {
            dataset.note(Fingerprint(fingerprint), 10).unwrap();
        }
        file.freeze(&DatasetFacts::new(Fingerprint(7), 100, 10))
    }

    const OPS: &str = "{ reverb = { dataset = \"/rooms\", p = 0.5 } }, { noise = { snr = [5, 20], dataset = \"s3://bucket/noise\" } }";

    #[test]
    fn a_dataset_is_a_text_or_a_table_and_travels_as_a_table() {
        let short = frozen("{ reverb = \"/rooms\" }", 3).unwrap();
        let full = frozen("{ reverb = { dataset = { url = \"/rooms\" }, p = 1.0 } }", 3).unwrap();
        assert_eq!(short, full);
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&short).unwrap()).unwrap();
        assert_eq!(back, short);
        let mut noted = file(OPS);
        noted.sound_datasets().for_each(|dataset| dataset.note(Fingerprint(3), 10).unwrap());
        let text = toml::to_string(&noted).unwrap();
        let again = JobFile::parse(&text, "job.toml").unwrap().freeze(&DatasetFacts::new(Fingerprint(7), 100, 10));
        assert_eq!(again.unwrap(), frozen(OPS, 3).unwrap());
        let one = short.sound_datasets().next().unwrap();
        assert!(one.fields().any(|field| field == "flac"));
    }

    #[test]
    fn the_datasets_are_part_of_what_a_job_promises_and_their_places_are_not() {
        let job = frozen(OPS, 3).unwrap();
        assert_ne!(frozen(OPS, 4).unwrap().fingerprint(), job.fingerprint());
        let moved = frozen(&OPS.replace("/rooms", "/other/rooms"), 3).unwrap();
        assert_eq!(moved.fingerprint(), job.fingerprint());
        assert_ne!(moved, job);
    }

    #[test]
    fn a_job_is_not_created_before_its_datasets_are_known() {
        let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
        let error = file(OPS).freeze(&facts).unwrap_err().to_string();
        assert!(error.contains("`ops` name the dataset `/rooms`, which was not opened"), "{error}");
        let mut other =
            file(&OPS.replace("\"/rooms\"", &format!("{{ url = \"/rooms\", fingerprint = \"{}\" }}", Fingerprint(9))));
        let dataset = other.sound_datasets().next().unwrap();
        let error = dataset.note(Fingerprint(3), 10).unwrap_err();
        assert!(error.contains("dataset `/rooms` has fingerprint") && error.contains("the job has"), "{error}");
        let error = file(OPS).sound_datasets().next().unwrap().note(Fingerprint(3), 0).unwrap_err();
        assert!(error.contains("has no samples"), "{error}");
    }

    #[test]
    fn which_recording_is_taken_follows_from_seed_epoch_sample_and_place_in_the_list() {
        let job = frozen(OPS, 3).unwrap();
        let ColumnKind::Audio(audio) = &job.columns[0].kind else { panic!("a sound") };
        let drawn = |op: usize, epoch: u64, id: u64| -> Option<(u64, SoundStep)> {
            let drawn = audio.ops[op].draw_sound(op, (17, epoch, id))?;
            assert_eq!(drawn.operation, op);
            Some((drawn.sample, drawn.step))
        };
        let mut counts = [0; 10];
        let mut rooms = 0;
        for id in 0..4000 {
            assert_eq!(drawn(1, 2, id), drawn(1, 2, id));
            let (sample, step) = drawn(1, 2, id).expect("noise is always added");
            counts[sample as usize] += 1;
            let SoundStep::Noise { decibels } = step else { panic!("{step:?}") };
            assert!((5.0..=20.0).contains(&decibels), "{decibels}");
            rooms += u32::from(drawn(0, 2, id).is_some());
        }
        assert!(counts.iter().all(|count| (300..500).contains(count)), "{counts:?}");
        assert!((1850..2150).contains(&rooms), "{rooms}");
        let differ = |a: u64, b: u64| (0..100).filter(|id| drawn(1, a, *id) != drawn(1, b, *id)).count();
        assert!(differ(1, 2) > 80);
        // What has no dataset draws nothing beside.
        assert!(SoundOp::dataset(&audio.ops[0]).is_some());
        let plain = frozen("{ noise = 10 }", 3).unwrap();
        assert_eq!(plain.sound_datasets().count(), 0);
    }

    #[test]
    fn what_cannot_be_a_dataset_is_named() {
        for (ops, expected) in [
            ("{ reverb = \"\" }", "`dataset` is empty"),
            ("{ reverb = \"s3://me:word@bucket/rooms\" }", "`dataset`"),
            ("{ reverb = { dataset = { url = \"r\", from = \"wav||flac\" } } }", "`dataset` is read `from` ``"),
            ("{ reverb = { dataset = \"r\", p = 2 } }", "`reverb` has p = 2, not in 0..1"),
        ] {
            let error = file(ops).check().unwrap_err().to_string();
            assert!(error.contains(expected), "{ops}: {error}");
        }
        let text = |ops: &str| format!("name = \"a\"\ndataset = \"d\"\nglobal_batch = 8\n{COLUMN}ops = [{ops}]\n");
        for (ops, expected) in [
            ("{ reverb = {} }", "`dataset` is missing"),
            ("{ reverb = { dataset = { folder = \"r\" } } }", "there is no key `folder`"),
            ("{ noise = { snr = 10, dataset = 3 } }", "dataset expects the folder or URL of a dataset"),
        ] {
            let error = JobFile::parse(&text(ops), "job.toml").unwrap_err().to_string();
            assert!(error.contains(expected), "{ops}: {error}");
        }
    }
}
