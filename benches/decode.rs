//! Measures decoding pictures like ImageNet's into a batch, on one thread; and the decoder alone, to separate the cost
//! of the steps from the cost of JPEG.
//!
//! `cargo bench --bench decode`

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use spdl_cli::pictures::Pictures;
use spdl_job::{Job, JobFile};
use spdl_order::DatasetFacts;
use spdl_types::{Fingerprint, SampleId};
use spdl_worker::decode::{Decoder, FieldTarget, SampleKey};

const PICTURES: u64 = 64;
const TRAIN: &str = "ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]";
const EVALUATE: &str = "ops = [{ resize = { size = 256 } }, { center_crop = { size = 224 } }]";
const NORMALISE: &str = "normalise = { mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] }";

fn job(column: &str) -> Job {
    let text = format!(
        "name = \"bench\"\ndataset = \"none\"\nglobal_batch = 64\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n{column}\n"
    );
    let facts = DatasetFacts::new(Fingerprint(0), 1000, 10);
    JobFile::parse(&text, "bench").and_then(|file| file.freeze(&facts)).expect("the job is valid")
}

fn decode(criterion: &mut Criterion) {
    let pictures = Pictures::new();
    let jpegs: Vec<Bytes> = (0..PICTURES).map(|number| pictures.picture(1, number).into()).collect();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    for (name, column) in [
        ("train, u8 nhwc", format!("{TRAIN}\ndtype = \"u8\"")),
        ("train, bf16 nchw normalised", format!("{TRAIN}\ndtype = \"bf16\"\nlayout = \"nchw\"\n{NORMALISE}")),
        ("evaluate, u8 nhwc", format!("{EVALUATE}\ndtype = \"u8\"")),
    ] {
        let job = job(&column);
        let decoder = Decoder::new(&job, []).expect("the decoder is valid");
        let mut out = vec![0; 224 * 224 * 3 * job.columns[0].dtype.bytes()];
        let mut id = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                id += 1;
                let jpeg = &jpegs[(id % PICTURES) as usize];
                let key = SampleKey { epoch: 0, id: SampleId(id), sample_in_record: 0 };
                let targets = &mut [FieldTarget::Fixed(&mut out)];
                decoder.decode_sample(key, &|_| Some(jpeg.clone().into()), targets).expect("the picture decodes");
            });
        });
    }
    let mut number = 0;
    group.bench_function("the crate image alone, no steps", |bencher| {
        let next = || {
            number += 1;
            jpegs[number % jpegs.len()].clone()
        };
        bencher.iter_batched(next, |jpeg| image::load_from_memory(&jpeg).expect("it decodes"), BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
