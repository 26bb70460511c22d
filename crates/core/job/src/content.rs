//! Fingerprints of what decides the bytes of decoded samples, by which jobs find columns that they have in common.

use super::{Column, Job, column::decoded_named};
use spdl_types::{
    Fingerprint,
    mutations::{Mutation, mutated},
};

/// What decides the bytes of a job's decoded samples, beside the epoch and the sample: not its name, order, batch size
/// or policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleContent {
    /// Fingerprint of the dataset and the seed, and of what packs documents into sequences.
    pub source: Fingerprint,
    /// The parts of a sample that are decoded independently of each other.
    pub parts: Vec<ContentPart>,
}

/// Columns of a sample that are decoded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentPart {
    /// Fingerprint of all that decides their bytes, beside the source.
    pub fingerprint: Fingerprint,
    /// Their numbers in the job.
    pub columns: Vec<usize>,
}

impl Job {
    /// Returns what decides the bytes of the job's samples before they are mixed. Each column is a part of its own. In
    /// a job with functions, which take values of several columns, all columns are one part.
    #[must_use]
    pub fn sample_content(&self) -> SampleContent {
        let seed = if mutated(Mutation::ShareOtherSeed) { 0 } else { self.seed };
        let source = match &self.sequence {
            None => fingerprint(&(&self.dataset_fingerprint, seed)),
            // Which documents a sequence has follows from all documents of the job, or of its source.
            Some(sequence) if !self.sources.is_empty() => {
                let views: Vec<_> = self.sources.iter().map(|source| source.view).collect();
                fingerprint(&(&self.dataset_fingerprint, seed, views, sequence))
            }
            Some(sequence) => fingerprint(&(&self.dataset_fingerprint, seed, &self.view, sequence)),
        };
        let parts = if self.columns.iter().any(Column::is_by_function) {
            let columns = (0..self.columns.len()).collect();
            vec![ContentPart { fingerprint: fingerprint(&self.columns), columns }]
        } else {
            let part = |(number, column): (usize, &Column)| ContentPart {
                fingerprint: fingerprint(&self.followed_from(column)),
                columns: vec![number],
            };
            self.columns.iter().enumerate().map(part).collect()
        };
        SampleContent { source, parts }
    }

    /// Returns a column, the column that it follows, the column which that one follows, and so on.
    fn followed_from<'j>(&'j self, column: &'j Column) -> Vec<&'j Column> {
        let next = |column: &&'j Column| decoded_named(column.kind.follows()?, &self.columns);
        // A chain is short, because each column follows a picture or its boxes.
        std::iter::successors(Some(column), next).take(self.columns.len() + 1).collect()
    }
}

fn fingerprint(content: &impl serde::Serialize) -> Fingerprint {
    Fingerprint::of(&serde_json::to_vec(content).expect("plain data serialises"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobFile;
    use spdl_order::DatasetFacts;

    const FACTS: DatasetFacts = DatasetFacts::new(Fingerprint(7), 100, 10);
    const PICTURES: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
                            ops = [{ random_resized_crop = 32 }, \"random_flip\"]\n\
                            [[column]]\nname = \"mask\"\nfrom = \"png\"\ndecode = \"mask\"\nfollows = \"image\"\n\
                            [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";

    fn content(keys: &str, columns: &str) -> SampleContent {
        let text = format!("name = \"a\"\ndataset = \"d\"\nglobal_batch = 10\nepochs = 2\n{keys}\n{columns}");
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&FACTS)).unwrap().sample_content()
    }

    #[test]
    fn the_name_the_order_and_the_batch_size_of_a_job_do_not_decide_its_samples_bytes() {
        let plain = content("", PICTURES);
        let text = format!(
            "name = \"b\"\ndataset = \"elsewhere\"\nglobal_batch = 20\nepochs = 1\nbad_samples = \"mask\"\n\
             shuffle = false\n{PICTURES}"
        );
        let other = JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&FACTS)).unwrap();
        assert_eq!(other.sample_content(), plain);
        assert_ne!(content("seed = 9", PICTURES).source, plain.source);
    }

    #[test]
    fn a_column_is_named_by_itself_and_by_those_that_it_follows() {
        let plain = content("", PICTURES);
        let parts = |content: &SampleContent| -> Vec<_> { content.parts.iter().map(|part| part.fingerprint).collect() };
        let [image, mask, label] = parts(&plain)[..] else { panic!("{plain:?}") };
        let same = |columns: &str| -> Vec<bool> {
            let other = parts(&content("", columns));
            [image, mask, label].iter().map(|part| other.contains(part)).collect()
        };
        assert_eq!(same(&PICTURES.replace("_crop = 32", "_crop = 64")), [false, false, true]);
        assert_eq!(same(&PICTURES.replace("from = \"png\"", "from = \"gif\"")), [true, false, true]);
        assert_eq!(same(&PICTURES.replace("from = \"cls\"", "from = \"id\"")), [true, true, false]);
        let third = PICTURES.rfind("[[column]]").unwrap();
        let moved = format!("{}{}", &PICTURES[third..], &PICTURES[..third]);
        assert_eq!(same(&moved), [true; 3], "the order of columns does not matter");
    }

    #[test]
    fn the_columns_of_a_job_with_functions_are_one_part() {
        let with = |function: &str| {
            let columns =
                PICTURES.replace("decode = \"int\"", &format!("decode = \"int\"\ntransform = \"{function}\""));
            content("", &columns)
        };
        let [first, second] = ["own::relabel@1", "own::relabel@2"].map(with);
        assert_eq!(first.parts.len(), 1);
        assert_eq!(first.parts[0].columns, [0, 1, 2]);
        assert_ne!(first.parts[0].fingerprint, second.parts[0].fingerprint);
    }
}
