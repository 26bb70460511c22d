//! The export of spans to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! Every batch is a trace of its own: its span begins when its samples are planned and ends when the batch is ready, with the
//! spans of its reads and of its decoding below it. The spans of sessions and ranks, which last as long as a training, are
//! not sent; [`describe_batch`] makes attributes of them. The usual variables choose the rest: `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_SCHEDULE_DELAY` and others.

use std::{env, fmt, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider};
pub use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, SdkProvidedResourceDetector},
    trace::SdkTracerProvider,
};
use spdl_types::SessionId;
use spdl_wire::spans;
use tracing::{Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

/// How long a process waits at its end until its last spans are sent.
const LAST_SPANS: Duration = Duration::from_secs(1);
/// Name of the tracer, by which readers know who made a span.
const TRACER: &str = "spdl";

/// The collector to which spans are sent, and the process that sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanExport {
    /// The collector: `http://HOST:4318`, below which its path is `/v1/traces`.
    pub collector: String,
    /// The service's name, such as `spdl-worker`; `OTEL_SERVICE_NAME` overrides it.
    pub service: &'static str,
    /// The name of this instance of the service.
    pub instance: String,
}

/// The guard of an export of spans. When dropped, it sends the remaining spans and waits for that for a second at most.
/// Must not be dropped by a task of tokio.
#[must_use = "the last spans are sent when it is dropped"]
pub struct Exporting {
    spans: SdkTracerProvider,
}

impl fmt::Debug for Exporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporting").finish_non_exhaustive()
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        // What cannot be sent has been logged.
        let _ = self.spans.shutdown_with_timeout(LAST_SPANS);
    }
}

impl SpanExport {
    /// Returns a layer that sends spans, and the guard that keeps it sending.
    ///
    /// # Errors
    /// [`ExporterBuildError`] if the collector's URL or a variable is invalid.
    pub(crate) fn layer<S>(&self) -> Result<(impl Layer<S> + use<S>, Exporting), ExporterBuildError>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        let url = format!("{}/v1/traces", self.collector.trim_end_matches('/'));
        let exporter =
            SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_endpoint(url).build()?;
        let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(self.resource()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer(TRACER)).with_filter(filter_fn(is_sent));
        Ok((layer, Exporting { spans }))
    }

    fn resource(&self) -> Resource {
        let own = Resource::builder_empty()
            .with_service_name(self.service)
            .with_attribute(KeyValue::new("service.instance.id", self.instance.clone()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_detector(Box::new(EnvResourceDetector::new()));
        match env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => own.with_detector(Box::new(SdkProvidedResourceDetector)).build(),
            None => own.build(),
        }
    }
}

/// Returns whether a span is sent, or an event inside one.
fn is_sent(metadata: &Metadata<'_>) -> bool {
    if metadata.is_span() { spans::is_of_batch(metadata) } else { *metadata.level() <= tracing::Level::WARN }
}

/// Adds the session, job and rank of a batch to its span.
pub fn describe_batch(span: &Span, session: SessionId, job: &str, rank: u32) {
    span.set_attribute("job", job.to_owned());
    span.set_attribute("session", session.0.to_string());
    span.set_attribute("rank", i64::from(rank));
}
