//! Measures opening a manifest of a million shards and four million blocks, and looking up shards, blocks and samples
//! in it.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use spdl_shard::manifest::{BlockFacts, Manifest, ManifestBuilder, ShardFacts};
use spdl_types::Fingerprint;

const SHARDS: u32 = 1_000_000;
const BLOCKS_PER_SHARD: u32 = 4;

fn manifest() -> Manifest {
    let mut builder = ManifestBuilder::new("million").classes((0..1000).map(|class| format!("n{class:08}")));
    let blocks: Vec<_> = (0..BLOCKS_PER_SHARD)
        .map(|block| BlockFacts {
            offset: u64::from(block) << 23,
            bytes: 1 << 23,
            first_record: 80 * block,
            records: 80,
            samples: 80,
        })
        .collect();
    for number in 0..SHARDS {
        let shard = ShardFacts {
            url: format!("part-{:03}/shard-{number:06}.tar", number / 1000),
            bytes: u64::from(BLOCKS_PER_SHARD) << 23,
            etag: Some(format!("\"{number:032x}\"")),
            records: 80 * BLOCKS_PER_SHARD,
            index_bytes: 20_000,
            index_hash: Fingerprint::of(&number.to_le_bytes()),
        };
        builder.shard(&shard, &blocks).expect("the shard fits");
    }
    builder.finish().expect("the manifest is valid")
}

fn benchmark(c: &mut Criterion) {
    let manifest = manifest();
    eprintln!("{} shards, {} blocks, {} bytes", SHARDS, manifest.block_count(), manifest.bytes().len());
    let mut group = c.benchmark_group("manifest");
    group.sample_size(10);
    group.bench_function("open 10^6 shards", |b| {
        b.iter_batched(|| manifest.bytes().clone(), |bytes| Manifest::open(bytes).unwrap(), BatchSize::LargeInput);
    });
    group.bench_function("block_samples of 4*10^6 blocks", |b| b.iter(|| manifest.block_samples()));
    group.finish();

    let mut number = 0_u32;
    let mut next = move || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number
    };
    c.bench_function("manifest/shard", |b| b.iter(|| black_box(manifest.shard(next() % SHARDS))));
    c.bench_function("manifest/block", |b| b.iter(|| black_box(manifest.block(next() % manifest.block_count()))));
    c.bench_function("manifest/block_of", |b| {
        b.iter(|| black_box(manifest.block_of(u64::from(next()) % manifest.samples())));
    });
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
