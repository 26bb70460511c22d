//! The reference for the pipeline: decodes the samples of a dataset whose bytes are in memory, on a given number of
//! threads, with nothing around it.

use std::{ops::Range, time::Instant};

use bytes::Bytes;
use rayon::prelude::*;
use spdl_job::Job;
use spdl_shard::store::DatasetStore;
use spdl_types::SampleId;
use spdl_worker::decode::{Decoder, FieldTarget, SampleKey};

/// The samples of a dataset, and their decoder.
pub(crate) struct Bare {
    decoder: Decoder,
    /// Picture and class of each sample.
    samples: Vec<[(String, Bytes); 2]>,
    pool: rayon::ThreadPool,
}

impl Bare {
    /// Reads a whole dataset of pictures and classes, for a job that crops them to 224 pixels.
    pub(crate) async fn open(store: &DatasetStore, job: &Job, threads: usize) -> Self {
        let manifest = store.manifest().await.expect("a dataset");
        let mut samples = Vec::new();
        for shard in manifest.shards() {
            let index = store.index(&shard).await.expect("an index");
            let object =
                store.object().get_opts(&store.path_of(shard.url), Default::default()).await.expect("the shard");
            let bytes = object.bytes().await.expect("the shard");
            samples.extend(index.records().map(|record| {
                ["jpg", "cls"].map(|name| {
                    let field = record.field(name).expect("every record has both");
                    (name.to_owned(), bytes.slice(field.offset as usize..field.offset as usize + field.bytes as usize))
                })
            }));
        }
        let decoder = Decoder::new(job, manifest.classes()).expect("a valid job");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        Self { decoder, samples, pool }
    }

    /// Decodes all samples in each of the epochs and returns images per second.
    pub(crate) fn run(&self, epochs: Range<u64>) -> f64 {
        let started = Instant::now();
        let count = self.samples.len() as u64 * (epochs.end - epochs.start);
        self.pool.install(|| {
            for epoch in epochs {
                self.samples.par_iter().enumerate().for_each(|(id, fields)| {
                    let (mut image, mut label) = (vec![0_u8; 224 * 224 * 3], [0_u8; 8]);
                    let key = SampleKey { epoch, id: SampleId(id as u64), sample_in_record: 0 };
                    let field = |name: &str| {
                        fields.iter().find(|(field, _)| field == name).map(|(_, bytes)| bytes.clone().into())
                    };
                    let mut targets = [FieldTarget::Fixed(&mut image), FieldTarget::Fixed(&mut label)];
                    self.decoder.decode_sample(key, &field, &mut targets).expect("a good picture");
                });
            }
        });
        count as f64 / started.elapsed().as_secs_f64()
    }
}
