//! Proptest strategies for every message.

mod jobs;

use proptest::{collection::vec, option, prelude::*};
use spdl_control::{
    help::{
        DecodeRequest, HelpJob, HelpReply, HelpReport, HelpStats, HelperList, StoredField, StoredSample, StoredValue,
    },
    messages::*,
    peers::{BlockReply, BlockRequest, PeerAddress, PeerMap, PeerStats, Readers, SessionReaders},
    trace::*,
};
use spdl_insight::{
    CacheStats, Measured, Presence, RankWindow, SlowObject, Stall, StoreStats, Transport, WorkerWindow,
    rates::StageRate,
    tuning::{Tunable, TunedValue, TuningChange, TuningStatus},
};
use spdl_order::Receipt;
use spdl_types::{
    BadSample, BatchId, DType, Fingerprint, NodeId, Position, SampleId, SessionId, Stage, StageStats, WorkerId,
};

use self::jobs::job;

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,24}"
}

fn float() -> impl Strategy<Value = f32> {
    -1e6_f32..1e6
}

fn position() -> impl Strategy<Value = Position> {
    (any::<u64>(), any::<u64>()).prop_map(|(epoch, offset)| Position::new(epoch, offset))
}

pub(crate) fn session() -> impl Strategy<Value = Session> {
    (any::<u64>(), job(), any::<u32>(), any::<u32>(), position()).prop_map(|(id, job, world, global_batch, start)| {
        Session { id: SessionId(id), job, world, global_batch, start }
    })
}

fn home() -> impl Strategy<Value = Home> {
    (any::<u64>(), text(), text(), any::<(std::net::IpAddr, u16)>(), option::of(text())).prop_map(
        |(worker, name, node, quic, socket)| Home {
            worker: WorkerId(worker),
            name,
            node: NodeId(node),
            quic: quic.into(),
            socket,
        },
    )
}

fn stage() -> impl Strategy<Value = Stage> {
    prop_oneof![proptest::sample::select(Stage::KNOWN), text().prop_map(Stage::from)]
}

fn stall() -> impl Strategy<Value = Stall> {
    (text(), stage(), text(), any::<u64>()).prop_map(|(worker, stage, waiting_for, waited_ms)| Stall {
        worker,
        stage,
        waiting_for,
        waited_ms,
    })
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Local), Just(Transport::Quic), Just(Transport::InProcess)]
}

fn rank_stats() -> impl Strategy<Value = RankStats> {
    (any::<u64>(), any::<u32>(), transport(), any::<u64>(), any::<u32>(), any::<u32>(), option::of(stall())).prop_map(
        |(session, rank, transport, batches, ready, slots, stall)| RankStats {
            session: SessionId(session),
            rank,
            transport,
            batches,
            ready,
            slots,
            stall,
        },
    )
}

fn stage_stats() -> impl Strategy<Value = StageStats> {
    (stage(), any::<[u64; 13]>()).prop_map(|(stage, n)| StageStats {
        stage,
        items: n[0],
        bytes: n[1],
        failures: n[2],
        busy_ns: n[3],
        input_wait_ns: n[4],
        output_wait_ns: n[5],
        throttled_ns: n[6],
        cpu_ns: n[7],
        units: n[8],
        queue_depth: n[9],
        p50_ns: n[10],
        p90_ns: n[11],
        p99_ns: n[12],
    })
}

fn store_stats() -> impl Strategy<Value = StoreStats> {
    any::<[u64; StoreStats::LEN]>().prop_map(StoreStats::of)
}

fn cache_stats() -> impl Strategy<Value = CacheStats> {
    any::<[u64; 5]>().prop_map(|[used_bytes, limit_bytes, window_bytes, dataset_bytes, transit_bytes]| CacheStats {
        used_bytes,
        limit_bytes,
        window_bytes,
        dataset_bytes,
        transit_bytes,
    })
}

fn slow_object() -> impl Strategy<Value = SlowObject> {
    (text(), any::<[u64; 4]>()).prop_map(|(object, [requests, mean_ns, other_requests, other_mean_ns])| SlowObject {
        object,
        requests,
        mean_ns,
        other_requests,
        other_mean_ns,
    })
}

fn stage_rate() -> impl Strategy<Value = StageRate> {
    (stage(), vec(0.0..1e9_f64, 8)).prop_map(|(stage, n)| StageRate {
        stage,
        items_per_s: n[0],
        bytes_per_s: n[1],
        failures_per_s: n[2],
        busy: n[3],
        input_wait: n[4],
        output_wait: n[5],
        throttled: n[6],
        cpu: n[7],
    })
}

fn worker_window() -> impl Strategy<Value = WorkerWindow> {
    let stages = vec(stage_rate(), 0..3);
    let cache = (cache_stats(), any::<u64>(), option::of(slow_object()));
    (text(), [0.0..1e3_f64, 0.0..1e3, 0.0..1e3], stages, any::<[u64; 2]>(), store_stats(), cache).prop_map(
        |(name, [cores, cores_used, store_s], stages, decode_ns, store, cache)| {
            let (cache, cache_growth_bytes, slow_object) = cache;
            WorkerWindow {
                name,
                cores,
                cores_used,
                stages,
                decode_ns,
                store_s,
                store,
                cache,
                cache_growth_bytes,
                slow_object,
            }
        },
    )
}

fn presence() -> impl Strategy<Value = Presence> {
    prop_oneof![
        Just(Presence::Alive),
        any::<u64>().prop_map(|for_ms| Presence::Silent { for_ms }),
        text().prop_map(|by| Presence::Superseded { by }),
    ]
}

fn rank_window() -> impl Strategy<Value = RankWindow> {
    let way = (option::of(transport()), any::<[u32; 3]>());
    ([0.0..1e3_f64, 0.0..1e3], any::<u64>(), option::of(stall()), presence(), way).prop_map(
        |([seconds, waited_s], samples, stall, presence, (transport, [rank, slots, ready]))| RankWindow {
            rank,
            seconds,
            samples,
            waited_s,
            stall,
            presence,
            transport,
            slots,
            ready,
        },
    )
}

fn measured() -> impl Strategy<Value = Measured> {
    (rank_window(), option::of(worker_window())).prop_map(|(rank, worker)| Measured { rank, worker })
}

fn bad_sample() -> impl Strategy<Value = BadSample> {
    (text(), any::<u64>(), text(), text(), text()).prop_map(|(job, sample, shard, key, cause)| BadSample {
        job,
        sample: SampleId(sample),
        shard,
        key,
        cause,
    })
}

fn tuning() -> impl Strategy<Value = TuningStatus> {
    let value = || prop::sample::select(&Tunable::ALL);
    let tuned = (value(), any::<u32>(), any::<bool>());
    let tuned = tuned.prop_map(|(value, current, is_pinned)| TunedValue { value, current, is_pinned });
    let change = (value(), any::<[u32; 2]>(), text(), any::<u64>());
    let change = change.prop_map(|(value, [from, to], reason, at_ms)| TuningChange { value, from, to, reason, at_ms });
    (vec(tuned, 0..3), vec(change, 0..3)).prop_map(|(values, changes)| TuningStatus { values, changes })
}

fn worker_heartbeat() -> impl Strategy<Value = WorkerHeartbeat> {
    let lists = (vec(rank_stats(), 0..3), vec(stage_stats(), 0..3), vec(bad_sample(), 0..3));
    let times = (any::<[u64; 3]>(), peer_stats());
    let stores = (store_stats(), cache_stats(), option::of(slow_object()), tuning());
    let parts = (home(), 0.0..1e3_f64, any::<bool>(), lists, stores, times, help_report().prop_map(Box::new));
    parts.prop_map(|(home, cores, draining, lists, stores, ([uptime_ms, cpu_ns, peer_map], peers), help)| {
        let (ranks, stages, bad_samples) = lists;
        let (store, cache, slow_object, tuning) = stores;
        let (slow_object, tuning) = (slow_object.map(Box::new), Box::new(tuning));
        WorkerHeartbeat {
            home,
            cores,
            draining,
            ranks,
            stages,
            uptime_ms,
            cpu_ns,
            store: Box::new(store),
            cache,
            slow_object,
            tuning,
            bad_samples,
            peer_map,
            peers,
            help,
        }
    })
}

fn join() -> impl Strategy<Value = Join> {
    let wishes = (option::of(any::<u32>()), option::of(any::<u64>()), start(), option::of(any::<u128>()));
    let launch = (option::of(text()), any::<bool>(), option::of(any::<u64>()), any::<u64>());
    let who = (text(), text(), any::<u32>(), any::<u32>());
    (who, wishes, launch, (text(), text(), any::<u64>())).prop_map(|(who, wishes, launch, client)| Join {
        job: who.0,
        run: who.1,
        rank: who.2,
        world: who.3,
        global_batch: wishes.0,
        epochs: wishes.1,
        start: wishes.2,
        fingerprint: wishes.3.map(Fingerprint),
        launch: launch.0,
        takeover: launch.1,
        session: launch.2.map(SessionId),
        since_unix_s: launch.3,
        node: NodeId(client.0),
        client: client.1,
        nonce: client.2,
    })
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Beginning), Just(Start::Resume), position().prop_map(Start::At)]
}

fn reason() -> impl Strategy<Value = StartReason> {
    prop_oneof![
        Just(StartReason::Beginning),
        any::<u64>().prop_map(|session| StartReason::Resumed { session: SessionId(session) }),
        Just(StartReason::Given),
    ]
}

fn run_name() -> impl Strategy<Value = Box<RunName>> {
    (text(), text()).prop_map(|(job, run)| Box::new(RunName { job, run }))
}

fn holder() -> impl Strategy<Value = Box<Holder>> {
    (any::<[u32; 3]>(), text(), any::<u64>()).prop_map(|([rank, world, others], client, since_unix_s)| {
        Box::new(Holder { rank, world, client, others, since_unix_s })
    })
}

fn rank_heartbeat() -> impl Strategy<Value = RankHeartbeat> {
    let who = (any::<u64>(), text(), any::<u32>(), any::<u64>());
    let far = (position(), any::<u128>(), option::of(any::<u64>()), any::<u64>(), option::of(transport()));
    (who, far).prop_map(|(who, far)| RankHeartbeat {
        session: SessionId(who.0),
        job: who.1,
        rank: who.2,
        nonce: who.3,
        acknowledged: far.0,
        receipt: Receipt(far.1),
        unreachable: far.2.map(WorkerId),
        waited_ms: far.3,
        transport: far.4,
    })
}

pub(crate) fn to_coordinator() -> impl Strategy<Value = ToCoordinator> {
    prop_oneof![
        worker_heartbeat().prop_map(ToCoordinator::WorkerHeartbeat),
        any::<u64>().prop_map(|worker| ToCoordinator::WorkerLeave { worker: WorkerId(worker) }),
        join().prop_map(ToCoordinator::Join),
        rank_heartbeat().prop_map(ToCoordinator::RankHeartbeat),
        rank_heartbeat().prop_map(ToCoordinator::RankLeave),
        (text(), text()).prop_map(|(toml, origin)| ToCoordinator::SubmitJob { toml, origin }),
        text().prop_map(|name| ToCoordinator::RemoveJob { name }),
        text().prop_map(|name| ToCoordinator::DescribeJob { name }),
        Just(ToCoordinator::Status),
        (text(), option::of(any::<u64>()))
            .prop_map(|(job, after)| ToCoordinator::BadSamples { job, after: after.map(SampleId) }),
        (text(), text()).prop_map(|(job, run)| ToCoordinator::ResetRun(RunName { job, run })),
        (any::<u64>(), any::<u32>())
            .prop_map(|(session, rank)| ToCoordinator::Measurements { session: SessionId(session), rank }),
        Just(ToCoordinator::Clock),
        (text(), any::<u64>()).prop_map(|(job, duration_ms)| ToCoordinator::StartTrace { job, duration_ms }),
        trace_part().prop_map(ToCoordinator::TracePart),
        any::<(u64, u32)>().prop_map(|(trace, part)| ToCoordinator::ReadTrace { trace, part }),
    ]
}

fn trace_order() -> impl Strategy<Value = TraceOrder> {
    any::<(u64, u64, u32)>().prop_map(|(trace, remaining_ms, spans)| TraceOrder { trace, remaining_ms, spans })
}

fn trace_source() -> impl Strategy<Value = TraceSource> {
    prop_oneof![
        any::<u64>().prop_map(|worker| TraceSource::Worker(WorkerId(worker))),
        any::<(u64, u32)>().prop_map(|(session, rank)| TraceSource::Rank { session: SessionId(session), rank }),
    ]
}

fn unit_span() -> impl Strategy<Value = UnitSpan> {
    let state =
        prop_oneof![Just(SpanState::Busy), Just(SpanState::Input), Just(SpanState::Output), Just(SpanState::Throttled)];
    let batch = (any::<u64>(), any::<u32>(), position()).prop_map(|(session, rank, from)| BatchId {
        session: SessionId(session),
        rank,
        from,
    });
    (any::<u32>(), state, any::<[u64; 2]>(), option::of(batch))
        .prop_map(|(unit, state, [start_us, end_us], batch)| UnitSpan { unit, state, start_us, end_us, batch })
}

fn trace_part() -> impl Strategy<Value = TracePart> {
    let stages = vec((text().prop_map(Stage::from), vec(unit_span(), 0..5)), 0..4);
    (any::<[u64; 3]>(), trace_source(), any::<u32>(), text(), stages, any::<bool>()).prop_map(
        |([trace, accuracy_us, lost], source, number, name, stages, is_last)| TracePart {
            trace,
            source,
            number,
            name,
            accuracy_us,
            lost,
            stages,
            is_last,
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        (text(), text()).prop_map(|(job, known)| Refusal::UnknownJob { job, known }),
        (any::<u32>(), any::<u32>()).prop_map(|(rank, world)| Refusal::RankOutOfRange { rank, world }),
        (run_name(), any::<u64>(), any::<u32>(), text(), holder(), any::<u64>()).prop_map(
            |(run, session, rank, field, holder, liveness_ms)| Refusal::SessionDisagrees {
                run,
                session: SessionId(session),
                rank,
                theirs: field.clone(),
                ours: field.clone(),
                field,
                holder,
                liveness_ms,
            }
        ),
        (run_name(), any::<u64>(), holder(), any::<u64>()).prop_map(|(run, session, holder, liveness_ms)| {
            Refusal::RunInUse { run, session: SessionId(session), holder, liveness_ms }
        }),
        (run_name(), any::<u64>(), position(), any::<u64>()).prop_map(|(run, session, position, epochs)| {
            Refusal::RunFinished { run, session: SessionId(session), position, epochs }
        }),
        (text(), position(), text()).prop_map(|(job, start, cause)| Refusal::StartOutOfRange { job, start, cause }),
        text().prop_map(|cause| Refusal::Internal { cause }),
        (option::of(text()), text()).prop_map(|(leader, cause)| Refusal::NotLeader { leader, cause }),
        (text(), text()).prop_map(|(job, cause)| Refusal::NoBatch { job, cause }),
        (text(), text(), text()).prop_map(|(job, run, known)| Refusal::UnknownRun { job, run, known }),
        (run_name(), any::<u64>()).prop_map(|(run, session)| Refusal::RunReset { run, session: SessionId(session) }),
    ]
}

fn peer_stats() -> impl Strategy<Value = PeerStats> {
    any::<[u64; PeerStats::LEN]>().prop_map(PeerStats::of)
}

fn help_report() -> impl Strategy<Value = HelpReport> {
    let counts = any::<[u64; HelpStats::LEN]>();
    (any::<[bool; 3]>(), any::<u64>(), counts).prop_map(|([is_helper, is_helper_only, is_helped], helpers, counts)| {
        HelpReport { is_helper, is_helper_only, is_helped, helpers, stats: HelpStats::of(counts) }
    })
}

fn stored_field() -> impl Strategy<Value = StoredField> {
    let value = prop_oneof![
        Just(StoredValue::File),
        vec(any::<u64>(), 0..4).prop_map(|shape| StoredValue::Array(DType::F32, shape)),
        vec(option::of(any::<u64>()), 0..4).prop_map(StoredValue::List),
    ];
    (any::<u16>(), value, any::<u64>()).prop_map(|(number, value, bytes)| StoredField { number, value, bytes })
}

fn stored_sample() -> impl Strategy<Value = StoredSample> {
    (any::<[u64; 2]>(), any::<u32>(), vec(stored_field(), 0..4)).prop_map(|([epoch, id], sample_in_record, fields)| {
        StoredSample { epoch, id: SampleId(id), sample_in_record, fields }
    })
}

fn decode_request() -> impl Strategy<Value = DecodeRequest> {
    let batch = (any::<u64>(), any::<u32>(), position());
    let batch = batch.prop_map(|(session, rank, from)| BatchId { session: SessionId(session), rank, from });
    (any::<u128>(), batch, vec(stored_sample(), 0..4)).prop_map(|(job, batch, samples)| DecodeRequest {
        job: Fingerprint(job),
        batch,
        samples,
    })
}

pub(crate) fn peer_request() -> impl Strategy<Value = PeerRequest> {
    prop_oneof![
        block_request().prop_map(PeerRequest::Block),
        (job(), vec(text(), 0..4)).prop_map(|(job, classes)| PeerRequest::Job(Box::new(HelpJob { job, classes }))),
        decode_request().prop_map(PeerRequest::Decode),
    ]
}

pub(crate) fn help_reply() -> impl Strategy<Value = HelpReply> {
    prop_oneof![
        Just(HelpReply::Ready),
        Just(HelpReply::UnknownJob),
        Just(HelpReply::Busy),
        text().prop_map(|cause| HelpReply::Unable { cause }),
        vec(option::of(vec(any::<u64>(), 0..4)), 0..4).prop_map(HelpReply::Decoded),
    ]
}

fn block_request() -> impl Strategy<Value = BlockRequest> {
    let ranges = || vec(any::<std::ops::Range<u64>>(), 0..4);
    (any::<(u64, u128, u32)>(), ranges(), ranges(), any::<bool>()).prop_map(
        |((session, dataset, block), parts, wanted, is_for_owner)| BlockRequest {
            session: SessionId(session),
            dataset: Fingerprint(dataset),
            block,
            parts,
            wanted,
            is_for_owner,
        },
    )
}

pub(crate) fn block_reply() -> impl Strategy<Value = BlockReply> {
    prop_oneof![Just(BlockReply::Fetching), Just(BlockReply::Block), Just(BlockReply::Missing)]
}

fn readers() -> impl Strategy<Value = Readers> {
    (any::<[u32; 2]>(), vec(option::of(any::<u16>()), 0..5)).prop_map(|([world, global_batch], homes)| Readers {
        world,
        global_batch,
        homes,
    })
}

fn peer_address() -> impl Strategy<Value = PeerAddress> {
    (any::<u64>(), any::<([u8; 4], u16)>())
        .prop_map(|(worker, quic)| PeerAddress { worker: WorkerId(worker), quic: quic.into() })
}

fn helper_list() -> impl Strategy<Value = HelperList> {
    (any::<u64>(), vec(peer_address(), 0..4)).prop_map(|(version, helpers)| HelperList { version, helpers })
}

fn peer_map() -> impl Strategy<Value = PeerMap> {
    let session = (any::<u64>(), readers(), vec(readers(), 0..3)).prop_map(|(session, now, before)| SessionReaders {
        session: SessionId(session),
        now,
        before,
    });
    (any::<u64>(), vec(peer_address(), 0..4), vec(session, 0..3)).prop_map(|(version, workers, sessions)| PeerMap {
        version,
        workers,
        sessions,
    })
}

pub(crate) fn from_coordinator() -> impl Strategy<Value = FromCoordinator> {
    prop_oneof![
        (any::<[u64; 2]>(), option::of(trace_order()), option::of(peer_map()), option::of(helper_list())).prop_map(
            |([heartbeat_ms, liveness_ms], trace, peers, helpers)| {
                let (peers, helpers) = (peers.map(Box::new), helpers.map(Box::new));
                FromCoordinator::WorkerAcknowledged { heartbeat_ms, liveness_ms, trace, peers, helpers }
            }
        ),
        (session(), reason(), option::of(home()), any::<u64>()).prop_map(|(session, reason, home, heartbeat_ms)| {
            FromCoordinator::Joined { session: Box::new(session), reason, home, heartbeat_ms }
        }),
        (option::of(home()), any::<u64>(), option::of(trace_order()))
            .prop_map(|(home, heartbeat_ms, trace)| FromCoordinator::RankAcknowledged { home, heartbeat_ms, trace }),
        any::<u64>().prop_map(FromCoordinator::Clock),
        (any::<[u64; 2]>(), option::of(trace_part()), any::<u32>(), vec(trace_source(), 0..5)).prop_map(
            |([trace, remaining_ms], part, processes, missing)| {
                let part = part.map(Box::new);
                FromCoordinator::Trace(Box::new(TraceProgress { trace, remaining_ms, part, processes, missing }))
            }
        ),
        job().prop_map(|job| FromCoordinator::Job(Box::new(job))),
        text().prop_map(FromCoordinator::Status),
        Just(FromCoordinator::Done),
        refusal().prop_map(FromCoordinator::Refused),
        (vec(any::<u64>(), 0..50), any::<bool>()).prop_map(|(samples, is_last)| FromCoordinator::BadSamples {
            samples: samples.into_iter().map(SampleId).collect(),
            is_last,
        }),
        option::of(measured()).prop_map(|measured| FromCoordinator::Measured(measured.map(Box::new))),
    ]
}

pub(crate) fn to_home() -> impl Strategy<Value = ToHome> {
    prop_oneof![
        (session(), any::<u32>(), position(), any::<u32>(), text(), option::of(any::<u128>())).prop_map(
            |(session, rank, from, slots, client, join_key)| {
                ToHome::Attach { session: Box::new(session), rank, from, slots, client, join_key }
            }
        ),
        (any::<u32>(), any::<bool>()).prop_map(|(slot, is_locked)| ToHome::Freed { slot, is_locked }),
        Just(ToHome::Explain),
        any::<u128>().prop_map(|key| ToHome::Join { key }),
    ]
}

pub(crate) fn from_home() -> impl Strategy<Value = FromHome> {
    prop_oneof![
        (any::<u32>(), any::<u64>()).prop_map(|(slots, slot_stride)| FromHome::Attached { slots, slot_stride }),
        (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(sequence, slot, used_bytes)| FromHome::Filled {
            sequence,
            slot,
            used_bytes
        }),
        (any::<u64>(), position()).prop_map(|(sequence, position)| FromHome::End { sequence, position }),
        Just(FromHome::Leaving),
        (text(), any::<bool>()).prop_map(|(message, is_retryable)| FromHome::Fault { message, is_retryable }),
        option::of(stall()).prop_map(FromHome::Explained),
    ]
}
