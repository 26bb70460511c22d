//! Messages between processes, and the frames around them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt;
use spdl_control::{
    help::{DecodeRequest, HelpJob, HelpReply, HelpReport, HelperList, StoredField, StoredSample, StoredValue},
    messages::*,
    peers::{BlockRequest, PeerAddress, PeerMap, PeerStats, Readers, SessionReaders},
    trace::*,
};
use spdl_insight::{
    CacheStats, Measured, RankWindow, ReceiveStats, SlowObject, Stall, Transport, WorkerWindow,
    tuning::{Tunable, TunedValue, TuningChange, TuningStatus},
};
use spdl_order::{BlendStage, Receipt, RedactedSamples, Redaction};
use spdl_types::{
    BadSample, BatchId, DType, Fingerprint, NodeId, Position, SampleId, SessionId, Stage, StageStats, WorkerId,
};
use spdl_wire::{
    codec,
    frame::{self, FrameReader, Message},
};
use tokio::io::{AsyncRead, ReadBuf};

use crate::{input::FuzzInput, session};

/// Checks that a message that was read can be written, and reads back the same. It compares bytes and not values,
/// because a float may be NaN.
pub(crate) fn message<M: Message>(data: &[u8]) {
    let Ok(message) = codec::decode::<M>(data) else { return };
    let mut framed = Vec::new();
    if frame::append_frame(&message, &mut framed).is_err() {
        assert!(data.len() > M::MAX_BYTES / 2, "a short message can be written");
        return;
    }
    let mut left = framed.clone();
    let again = frame::take_frame::<M>(&mut left).expect("what was written is valid").expect("and whole");
    assert!(left.is_empty());
    let mut twice = Vec::new();
    frame::append_frame(&again, &mut twice).expect("it was written before");
    assert!(framed == twice, "a {} changes on its way", M::NAME);
}

/// Checks that a stream of frames gives the same messages however its bytes are split.
pub(crate) fn frames(data: &[u8]) {
    let mut input = FuzzInput(data);
    match input.byte() % 4 {
        0 => stream::<ToCoordinator>(input),
        1 => stream::<FromCoordinator>(input),
        2 => stream::<ToHome>(input),
        _ => stream::<FromHome>(input),
    }
}

fn stream<M: Message>(mut input: FuzzInput<'_>) {
    let most = usize::from(input.byte()) + 1;
    let bytes = input.0;
    let mut whole = bytes.to_vec();
    let mut reader = FrameReader::new(SplitReader { bytes, most }, Vec::new());
    let mut one_by_one = bytes;
    loop {
        let taken = outcome(frame::take_frame::<M>(&mut whole));
        let read = outcome(reader.next::<M>().now_or_never().expect("bytes are always ready"));
        let alone = outcome(frame::read_frame::<M>(&mut one_by_one).now_or_never().expect("bytes are always ready"));
        match taken {
            // `take_frame` may still receive the rest of a frame; for the other readers the stream has ended.
            Ok(None) if !whole.is_empty() => assert!(read.is_err() && alone.is_err(), "{read:?}, {alone:?}"),
            _ => assert!(taken == read && read == alone, "{taken:?}, {read:?}, {alone:?}"),
        }
        if !matches!(taken, Ok(Some(_))) {
            return;
        }
    }
}

/// Returns the message as bytes, or the error as text.
fn outcome<M: Message>(read: Result<Option<M>, frame::FrameError>) -> Result<Option<Vec<u8>>, String> {
    let message = read.map_err(|error| error.to_string())?;
    Ok(message.map(|message| {
        let mut bytes = Vec::new();
        codec::encode(&message, &mut bytes).expect("what was read can be written");
        bytes
    }))
}

/// Bytes that arrive in pieces of at most `most` bytes.
struct SplitReader<'a> {
    bytes: &'a [u8],
    most: usize,
}

impl AsyncRead for SplitReader<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = self.most.min(buf.remaining()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(count);
        buf.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

/// Returns seeds of these messages.
pub(crate) fn encoded<M: Message>(messages: &[M]) -> Vec<Vec<u8>> {
    let encode = |message| {
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes).expect("a seed can be written");
        bytes
    };
    messages.iter().map(encode).collect()
}

fn home() -> Home {
    Home {
        worker: WorkerId(7),
        name: "worker-0".into(),
        node: NodeId("node-0".into()),
        quic: "127.0.0.1:7402".parse().expect("an address"),
        socket: Some("/run/spdl/worker.sock".into()),
    }
}

fn stall() -> Stall {
    Stall { worker: "w".into(), stage: Stage::Fetch, waiting_for: "shard `a.tar`".into(), waited_ms: 5 }
}

fn rank_heartbeat() -> RankHeartbeat {
    RankHeartbeat {
        session: SessionId(1),
        job: "train".into(),
        rank: 0,
        nonce: 9,
        acknowledged: Position::new(0, 8),
        receipt: Receipt(3),
        unreachable: Some(WorkerId(7)),
        waited_ms: 2,
        transport: Some(Transport::Quic),
        received: ReceiveStats { connections: 2, bytes: 5_000, thread_ns: 1_000_000 },
        handed: Position::new(0, 16),
        fingerprint: Fingerprint(3),
        promise: Some(JobHold { change: Fingerprint(7), from: 96 }),
        number: 5,
    }
}

/// Returns one request of each kind, in an order that a coordinator can follow.
fn tuning() -> TuningStatus {
    let value = Tunable::Requests;
    let change = TuningChange { value, from: 32, to: 64, reason: "a trial".into(), at_ms: 7_000 };
    TuningStatus { values: vec![TunedValue { value, current: 64, is_pinned: false }], changes: vec![change] }
}

pub(crate) fn requests() -> Vec<ToCoordinator> {
    let stats = RankStats {
        session: SessionId(1),
        rank: 0,
        transport: Transport::Local,
        batches: 4,
        ready: 1,
        slots: 4,
        stall: Some(stall()),
    };
    let bad = BadSample {
        job: "train".into(),
        sample: SampleId(4),
        shard: "a.tar".into(),
        key: "n01/4".into(),
        cause: "cut".into(),
    };
    let join = Join {
        job: "train".into(),
        run: "train".into(),
        rank: 0,
        world: 1,
        global_batch: None,
        epochs: Some(2),
        start: Start::At(Position::START),
        fingerprint: None,
        launch: Some("1234.0".into()),
        takeover: true,
        session: Some(SessionId(1)),
        changes: Some(Box::new(KnownChanges {
            stages: vec![BlendStage { from: 40, weights: vec![65_535, 1] }],
            redactions: vec![Redaction { from: 8, samples: RedactedSamples::new(vec![SampleId(7)]) }],
            earlier: vec![Fingerprint(3)],
            handed: Position::new(0, 16),
            hold: Some(JobHold { change: Fingerprint(7), from: 96 }),
        })),
        since_unix_s: 1_795_309_262,
        node: NodeId("node-0".into()),
        client: "process 1".into(),
        nonce: 9,
    };
    let stages = vec![StageStats { items: 1, ..StageStats::new(Stage::Decode) }];
    vec![
        ToCoordinator::SubmitJob { toml: crate::texts::JOB.into(), origin: "job.toml".into() },
        ToCoordinator::ReplaceJob { toml: crate::texts::JOB.into(), origin: "job.toml".into() },
        ToCoordinator::SetWeights { job: "train".into(), from: Some(9), weights: vec![65_535, 1] },
        ToCoordinator::Redact { job: "train".into(), from: None, samples: RedactedSamples::new(vec![SampleId(7)]) },
        ToCoordinator::SessionJob { session: SessionId(1), job: "train".into(), rank: 0, nonce: 9 },
        ToCoordinator::WorkerHeartbeat(WorkerHeartbeat {
            home: home(),
            cores: 4.0,
            draining: false,
            ranks: vec![stats],
            stages,
            uptime_ms: 9_000,
            cpu_ns: 4_000_000_000,
            sending_thread_ns: 1_000_000_000,
            store: Box::default(),
            cache: CacheStats::default(),
            slow_object: Some(Box::new(SlowObject {
                object: "a.tar".into(),
                requests: 4,
                mean_ns: 9_000_000,
                other_requests: 40,
                other_mean_ns: 9_000,
            })),
            tuning: Box::new(tuning()),
            bad_samples: vec![bad],
            peer_map: 7,
            peers: Box::new(PeerStats { received_blocks: 3, ..PeerStats::default() }),
            help: Box::new(HelpReport { helpers: 5, ..HelpReport::default() }),
        }),
        ToCoordinator::Join(join),
        ToCoordinator::RankHeartbeat(rank_heartbeat()),
        ToCoordinator::RankLeave(rank_heartbeat()),
        ToCoordinator::DescribeJob { name: "train".into() },
        ToCoordinator::Status,
        ToCoordinator::BadSamples { job: "train".into(), after: Some(SampleId(7)) },
        ToCoordinator::ResetRun(RunName { job: "train".into(), run: "lr-3e-4".into() }),
        ToCoordinator::Measurements { session: SessionId(1), rank: 0 },
        ToCoordinator::RemoveJob { name: "train".into() },
        ToCoordinator::WorkerLeave { worker: WorkerId(7) },
        ToCoordinator::Clock,
        ToCoordinator::StartTrace { job: "train".into(), duration_ms: 1_000 },
        ToCoordinator::TracePart(trace_part()),
        ToCoordinator::ReadTrace { trace: 1, part: 0 },
        ToCoordinator::Classes { job: "train".into(), first: 7 },
    ]
}

fn trace_order() -> TraceOrder {
    TraceOrder { trace: 1, remaining_ms: 900, spans: 4096 }
}

fn trace_part() -> TracePart {
    let batch = BatchId { session: SessionId(1), rank: 0, from: Position { epoch: 1, offset: 64 } };
    let span = UnitSpan { unit: 3, state: SpanState::Busy, start_us: 7, end_us: 9, batch: Some(batch) };
    TracePart {
        trace: 1,
        source: TraceSource::Worker(WorkerId(7)),
        number: 0,
        name: "node-0".into(),
        accuracy_us: 90,
        lost: 0,
        stages: vec![(Stage::Decode, vec![span])],
        is_last: true,
    }
}

fn peer_map() -> PeerMap {
    let readers = |homes: Vec<Option<u16>>| Readers { world: homes.len() as u32, global_batch: 96, homes };
    let session = SessionReaders {
        session: SessionId(1),
        now: readers(vec![Some(0), None]),
        before: vec![readers(vec![Some(0)])],
    };
    let worker = PeerAddress { worker: WorkerId(5), quic: ([127, 0, 0, 1], 7400).into() };
    PeerMap { version: 9, workers: vec![worker], sessions: vec![session] }
}

fn notice() -> JobNotice {
    JobNotice { fingerprint: Fingerprint(3), hold: Some(JobHold { change: Fingerprint(7), from: 96 }) }
}

pub(crate) fn replies() -> Vec<FromCoordinator> {
    let session = session::session();
    vec![
        FromCoordinator::WorkerAcknowledged {
            heartbeat_ms: 1000,
            liveness_ms: 5000,
            trace: Some(trace_order()),
            peers: Some(Box::new(peer_map())),
            helpers: Some(Box::new(HelperList { version: 5, helpers: peer_map().workers })),
        },
        FromCoordinator::Joined {
            session: Box::new(session.clone()),
            reason: StartReason::Beginning,
            home: Some(home()),
            heartbeat_ms: 1000,
        },
        FromCoordinator::RankAcknowledged { home: None, heartbeat_ms: 1000, trace: None, notice: notice() },
        FromCoordinator::Changing { at: Position::new(1, 8), waiting: "rank 0 of run `train`".into() },
        FromCoordinator::Clock(7),
        FromCoordinator::Classes { names: vec!["ant".into(), "bee".into()], is_last: true },
        FromCoordinator::Job(Box::new(session.job)),
        FromCoordinator::Status("{}".into()),
        FromCoordinator::Measured(Some(Box::new(Measured {
            rank: RankWindow {
                seconds: 5.0,
                samples: 64,
                waited_s: 1.0,
                stall: Some(stall()),
                ..RankWindow::default()
            },
            worker: Some(WorkerWindow { name: "worker-0".into(), cores: 4.0, ..WorkerWindow::default() }),
        }))),
        FromCoordinator::Done,
        FromCoordinator::Trace(Box::new(TraceProgress {
            trace: 1,
            remaining_ms: 5,
            part: Some(Box::new(trace_part())),
            processes: 2,
            missing: vec![TraceSource::Rank { session: SessionId(1), rank: 0 }],
        })),
        FromCoordinator::Refused(Refusal::UnknownJob { job: "a".into(), known: "b".into() }),
    ]
}

pub(crate) fn to_home() -> [ToHome; 3] {
    [session::attach(), ToHome::Freed { slot: 3, is_locked: true }, ToHome::Explain]
}

pub(crate) fn replies_of_home() -> Vec<FromHome> {
    vec![
        FromHome::Attached { slots: 4, slot_stride: 8192 },
        FromHome::Filled { sequence: 0, slot: 1, used_bytes: 5000 },
        FromHome::End { sequence: 1, position: Position::new(2, 0) },
        FromHome::Leaving,
        FromHome::Fault { message: "gone".into(), is_retryable: true },
        FromHome::Explained(Some(stall())),
    ]
}

pub(crate) fn peer_request_seeds() -> Vec<Vec<u8>> {
    let block = BlockRequest {
        session: SessionId(1),
        dataset: Fingerprint(7),
        block: 3,
        parts: vec![0..1000, 2000..2500],
        wanted: vec![0..10, 2100..2200],
        is_for_owner: true,
    };
    let job = HelpJob { job: session::session().job, classes: vec!["cat".into()] };
    let fields = vec![
        StoredField { number: 0, value: StoredValue::File, bytes: 4096 },
        StoredField { number: 1, value: StoredValue::Array(DType::F32, vec![2, 3]), bytes: 24 },
        StoredField { number: 2, value: StoredValue::List(vec![Some(100), None, Some(0)]), bytes: 100 },
    ];
    let batch = BatchId { session: SessionId(1), rank: 0, from: Position::new(0, 64) };
    let samples = vec![StoredSample { epoch: 0, id: SampleId(9), sample_in_record: 0, fields }];
    let decode = DecodeRequest { job: Fingerprint(7), batch, samples };
    encoded(&[PeerRequest::Block(block), PeerRequest::Job(Box::new(job)), PeerRequest::Decode(decode)])
}

pub(crate) fn help_reply_seeds() -> Vec<Vec<u8>> {
    let decoded = HelpReply::Decoded(vec![Some(vec![12, 0]), None]);
    encoded(&[
        HelpReply::Ready,
        HelpReply::UnknownJob,
        HelpReply::Busy,
        HelpReply::Unable { cause: "no".into() },
        decoded,
    ])
}

pub(crate) fn frames_seeds() -> Vec<Vec<u8>> {
    fn framed<M: Message>(kind: u8, messages: &[M]) -> Vec<u8> {
        let mut bytes = vec![kind, 6];
        messages.iter().for_each(|message| frame::append_frame(message, &mut bytes).expect("a seed can be written"));
        bytes
    }
    vec![framed(0, &requests()), framed(1, &replies()), framed(2, &to_home()), framed(3, &replies_of_home())]
}
