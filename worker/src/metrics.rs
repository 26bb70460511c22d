//! The worker's metrics, in Prometheus' text format. Labels are names of stages, jobs and transports, never ids of
//! samples or shards.

use std::{fmt, sync::atomic::AtomicU64, time::Instant};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text::encode},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use spdl_control::messages::RankStats;
use spdl_frames::FrameCounts;
use spdl_insight::{
    CountMetric, CountUnit,
    tuning::{Tunable, TunedValue},
};
use spdl_types::{StageStats, histogram::DurationBuckets};
use spdl_wire::rejections::Rejections;

use crate::{
    decode::PictureCounts,
    feed::{Resources, SharingStats},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecoderLabels {
    decoder: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeviationLabels {
    oddity: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionRankLabels {
    session: String,
    rank: u32,
}

/// The durations of the items of each stage, as histograms.
#[derive(Debug)]
struct StageDurations(Vec<(StageLabels, DurationBuckets)>);

impl EncodeMetric for StageDurations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, DurationBuckets { buckets, longer, sum }) in &self.0 {
            let bounded = buckets.iter().map(|(bound, count)| (bound.as_secs_f64(), *count));
            let buckets: Vec<(f64, u64)> = bounded.chain([(f64::MAX, *longer)]).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let mut encoder = encoder.encode_family(labels)?;
            encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

type RealGauge = Gauge<f64, AtomicU64>;
type RealCounter = Counter<f64, AtomicU64>;

/// Returns all metrics as text. They are built from the statistics on each request, so nothing is counted twice.
pub(crate) fn text(resources: &Resources, ranks: &[RankStats], rejections: &Rejections, is_accepted: bool) -> String {
    let mut registry = Registry::default();
    let mut single = |name: &str, help: &str, value: f64| {
        let gauge = RealGauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let (slab_bytes, block_bytes) = resources.memory_bytes();
    single("spdl_worker_slab_bytes", "Memory set aside for slots", slab_bytes as f64);
    single("spdl_worker_block_bytes", "Memory of cached blocks", block_bytes as f64);
    single("spdl_worker_memory_budget_bytes", "Memory budget", resources.budget().memory_bytes as f64);
    single("spdl_worker_budget_cores", "CPU budget", resources.budget().cores);
    for TunedValue { value, current, .. } in resources.tuning().values {
        let (name, help) = match value {
            Tunable::Requests => ("spdl_worker_requests_limit", "Maximum number of requests to stores in flight"),
            Tunable::ReadAhead => ("spdl_worker_read_ahead_steps", "Steps whose blocks are fetched ahead"),
        };
        single(name, help, current.into());
    }
    single("spdl_worker_ranks", "Ranks served", ranks.len() as f64);
    let help = "Workers, this one among them, that read or have read the blocks of its ranks' sessions";
    single("spdl_worker_peers", help, resources.fetcher.peers.count() as f64);
    let help = "1 while the coordinator answers heartbeats";
    single("spdl_worker_coordinator_up", help, f64::from(u8::from(is_accepted)));
    let family = Family::<[(&str, &str); 1], Counter>::default();
    for (cause, count) in rejections.counts() {
        family.get_or_create(&[("cause", cause)]).inc_by(count);
    }
    let help =
        "Peers that were rejected, by cause: what they sent, their certificate, their role or user, a full server";
    registry.register("spdl_worker_peers_rejected", help, family);
    pictures(&mut registry, &resources.decoding.pictures);
    videos(&mut registry, resources.decoding.frame_counts());
    resources.store_stats().metrics().into_iter().for_each(|metric| count(&mut registry, metric));
    resources.fetcher.peers.stats().metrics().into_iter().for_each(|metric| count(&mut registry, metric));
    resources.helpers.stats().metrics().into_iter().for_each(|metric| count(&mut registry, metric));
    sharing(&mut registry, &resources.sharing.stats());
    let cpu = RealCounter::default();
    cpu.inc_by(resources.cpu_time().as_secs_f64());
    registry.register("spdl_worker_cpu_seconds", "CPU time of the process", cpu);
    stages(&mut registry, &resources.stages(Instant::now()));
    let labelled = |(stage, buckets)| (StageLabels { stage }, buckets);
    let durations = StageDurations(resources.durations().into_iter().map(labelled).collect());
    registry.register("spdl_worker_stage_item_seconds", "Time of one item", durations);
    per_rank(&mut registry, ranks);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    text
}

fn pictures(registry: &mut Registry, counts: &PictureCounts) {
    let family = Family::<DecoderLabels, Counter>::default();
    for (decoder, count) in [("crop", counts.cropped()), ("whole", counts.whole())] {
        family.get_or_create(&DecoderLabels { decoder }).inc_by(count);
    }
    registry.register("spdl_worker_pictures", "Pictures decoded: what their crop needs, or the whole", family);
    let family = Family::<DeviationLabels, Counter>::default();
    for (oddity, count) in counts.odd() {
        family.get_or_create(&DeviationLabels { oddity }).inc_by(count);
    }
    let help = "Pictures decoded though they depart from the standard, by how they do";
    registry.register("spdl_worker_odd_pictures", help, family);
}

fn videos(registry: &mut Registry, FrameCounts { packets, frames }: FrameCounts) {
    let help = "Packets of videos that were decoded, once for all samples of a batch that share them";
    counter(registry, "spdl_worker_video_packets", help, packets);
    let help = "Frames of videos that were decoded for samples";
    counter(registry, "spdl_worker_video_frames", help, frames);
}

fn sharing(registry: &mut Registry, SharingStats { samples, refused, bytes }: &SharingStats) {
    let mut counter = |name: &str, help: &str, value: u64| counter(registry, name, help, value);
    let help = "Decoded samples that were taken from another session's rank instead of decoding them";
    counter("spdl_worker_shared_samples", help, samples.taken);
    let help = "Decoded samples of which some columns were taken from another session's rank";
    counter("spdl_worker_shared_samples_in_part", help, samples.taken_in_part);
    let help = "Decoded samples that were kept for a rank of another session";
    counter("spdl_worker_shared_samples_kept", help, samples.kept);
    let help = "Columns of samples that were kept and that no rank took";
    counter("spdl_worker_shared_columns_unused", help, samples.unused);
    let help = "Samples that were not shared because there was no memory to keep them";
    counter("spdl_worker_shared_samples_refused", help, *refused);
    let gauge = RealGauge::default();
    gauge.set(*bytes as f64);
    registry.register("spdl_worker_shared_bytes", "Memory of decoded samples that are kept for other sessions", gauge);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn count(registry: &mut Registry, CountMetric { name, help, unit, value }: CountMetric) {
    match unit {
        CountUnit::Total => counter(registry, name, help, value),
        CountUnit::TotalNs => {
            let counter = RealCounter::default();
            counter.inc_by(value as f64 / 1e9);
            registry.register(name, help, counter);
        }
        CountUnit::CurrentMs => {
            let gauge = RealGauge::default();
            gauge.set(value as f64 / 1e3);
            registry.register(name, help, gauge);
        }
    }
}

fn stages(registry: &mut Registry, stages: &[StageStats]) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut counter = |name: &str, help: &str, value: &dyn Fn(&StageStats) -> f64| {
        let family = Family::<StageLabels, RealCounter>::default();
        for stage in stages {
            family.get_or_create(&StageLabels { stage: stage.stage.to_string() }).inc_by(value(stage));
        }
        registry.register(name, help, family);
    };
    counter("spdl_worker_stage_items", "Items done", &|stage| stage.items as f64);
    counter("spdl_worker_stage_bytes", "Bytes done", &|stage| stage.bytes as f64);
    counter("spdl_worker_stage_failures", "Items that failed", &|stage| stage.failures as f64);
    counter("spdl_worker_stage_busy_seconds", "Time in which units worked", &|stage| seconds(stage.busy_ns));
    let help = "Time in which units waited for an item";
    counter("spdl_worker_stage_input_wait_seconds", help, &|stage| seconds(stage.input_wait_ns));
    let help = "Time in which units waited for room behind the stage";
    counter("spdl_worker_stage_output_wait_seconds", help, &|stage| seconds(stage.output_wait_ns));
    let help = "Time in which units were held back";
    counter("spdl_worker_stage_throttled_seconds", help, &|stage| seconds(stage.throttled_ns));
    counter("spdl_worker_stage_cpu_seconds", "CPU time of decoding", &|stage| seconds(stage.cpu_ns));
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&StageStats) -> u64| {
        let family = Family::<StageLabels, RealGauge>::default();
        for stage in stages {
            family.get_or_create(&StageLabels { stage: stage.stage.to_string() }).set(value(stage) as f64);
        }
        registry.register(name, help, family);
    };
    gauge("spdl_worker_stage_units", "Units", &|stage| stage.units);
    gauge("spdl_worker_stage_queue_items", "Items in front of the stage", &|stage| stage.queue_depth);
}

fn per_rank(registry: &mut Registry, ranks: &[RankStats]) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&RankStats) -> f64| {
        let family = Family::<SessionRankLabels, RealGauge>::default();
        for stats in ranks {
            let labels = SessionRankLabels { session: format!("{:016x}", stats.session.0), rank: stats.rank };
            family.get_or_create(&labels).set(value(stats));
        }
        registry.register(name, help, family);
    };
    gauge("spdl_worker_rank_batches", "Batches filled for the rank", &|rank| rank.batches as f64);
    gauge("spdl_worker_rank_ready_batches", "Batches filled and not given back", &|rank| f64::from(rank.ready));
    gauge("spdl_worker_rank_slots", "Slots of the rank", &|rank| f64::from(rank.slots));
    let help = "How long the rank's next batch has waited for what it waits for";
    gauge("spdl_worker_rank_stall_seconds", help, &|rank| {
        rank.stall.as_ref().map_or(0.0, |stall| stall.waited_ms as f64 / 1e3)
    });
}
