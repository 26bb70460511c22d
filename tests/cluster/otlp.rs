//! What a worker sends to a collector of OpenTelemetry.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;
use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PICTURES: u64 = 240;
/// Samples of a rank's batch.
const BATCH: i64 = 32;
/// Batches of a rank.
const BATCHES: usize = 3;

/// Takes spans at a port of loopback, or answers that it is busy.
async fn collector(is_busy: Arc<AtomicBool>) -> (String, UnboundedReceiver<ExportTraceServiceRequest>) {
    let (requests, received) = unbounded_channel();
    let take = move |body: Bytes| async move {
        if is_busy.load(Relaxed) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        let request = ExportTraceServiceRequest::decode(body).expect("a request of the protocol");
        requests.send(request).map_or(StatusCode::GONE, |()| StatusCode::OK)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
    (url, received)
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => Some(*number),
        _ => None,
    }
}

/// Runs a job of two ranks on a worker that sends its spans to `collector`, and stops the worker.
fn train(collector: &str, name: &str) {
    let dataset = TestDataset::of_pictures(PICTURES, 40);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--otlp", collector]);
    cluster.submit(&dataset.training_job(name, 1));
    for report in cluster.pull_all(name, 2, &["node-0"], &[]) {
        assert_eq!(report["batches"].as_u64(), Some(BATCHES as u64), "{report}");
    }
    let worker = &mut cluster.workers[0].process;
    worker.signal(Signal::TERM);
    assert!(worker.wait().success(), "it stops as it does without a collector");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_batch_is_a_trace_with_its_reads_and_its_decoding() {
    let (url, mut received) = collector(Arc::default()).await;
    tokio::task::spawn_blocking(move || train(&url, "traced")).await.expect("it does not panic");
    let mut spans: Vec<Span> = Vec::new();
    while let Ok(request) = received.try_recv() {
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.expect("a resource").attributes;
            assert_eq!(text(&resource, "service.name"), Some("spdl-worker"));
            assert_eq!(text(&resource, "service.instance.id"), Some("node-0"));
            spans.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let batches: HashMap<&[u8], &Span> =
        spans.iter().filter(|span| span.name == "batch").map(|span| (&*span.span_id, span)).collect();
    let mut ready = HashMap::new();
    let mut traces = HashSet::new();
    for batch in batches.values() {
        assert!(batch.parent_span_id.is_empty(), "a trace of its own: {batch:?}");
        assert_eq!(text(&batch.attributes, "job"), Some("traced"));
        assert!(text(&batch.attributes, "session").is_some(), "{batch:?}");
        let (rank, at) = (number(&batch.attributes, "rank"), text(&batch.attributes, "batch"));
        ready.insert((rank.expect("a rank"), at.expect("a position")), &*batch.trace_id);
        assert!(traces.insert(&batch.trace_id), "two batches of one trace");
    }
    for rank in [0, 1] {
        assert!(ready.keys().filter(|(of, _)| *of == rank).count() >= BATCHES, "rank {rank}: {:?}", ready.keys());
    }
    let mut decoded: HashMap<&[u8], i64> = HashMap::new();
    let mut read = 0;
    for span in spans.iter().filter(|span| span.name != "batch") {
        let batch = batches.get(&*span.parent_span_id).unwrap_or_else(|| panic!("no batch of {span:?}"));
        assert_eq!(span.trace_id, batch.trace_id);
        assert!(batch.start_time_unix_nano <= span.start_time_unix_nano, "{batch:?} {span:?}");
        match &*span.name {
            "decode" => {
                assert!(span.end_time_unix_nano <= batch.end_time_unix_nano, "{batch:?} {span:?}");
                *decoded.entry(&batch.span_id).or_default() += number(&span.attributes, "samples").expect("samples");
            }
            "fetch" => {
                assert!(text(&span.attributes, "shard").is_some_and(|shard| shard.ends_with(".tar")), "{span:?}");
                assert!(number(&span.attributes, "block").is_some(), "{span:?}");
                read += 1;
            }
            other => panic!("a span `{other}`"),
        }
    }
    let whole = decoded.values().filter(|samples| **samples == BATCH).count();
    assert!(whole >= 2 * BATCHES, "every sample is decoded in a span of its batch: {decoded:?}");
    assert!(read > 0, "reads are in the trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_takes_nothing_keeps_no_batch_back() {
    let (url, mut received) = collector(Arc::new(AtomicBool::new(true))).await;
    tokio::task::spawn_blocking(move || train(&url, "untraced")).await.expect("it does not panic");
    assert!(received.try_recv().is_err());
    tokio::task::spawn_blocking(move || train("http://127.0.0.1:1", "away")).await.expect("it does not panic");
}

#[test]
fn a_collector_that_is_no_url_is_refused_with_the_flag() {
    let mut worker = ctl();
    worker.args(["worker", "--coord", "127.0.0.1:1", "--certs", "/nowhere", "--no-socket", "--otlp", "not a url"]);
    run(&mut worker).error(&["--otlp", "not a url"]);
}
