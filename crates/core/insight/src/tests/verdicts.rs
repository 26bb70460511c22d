//! Tests of the verdicts on a rank and on a session.

use spdl_types::Stage;

use super::diagnosis;
use crate::{
    Diagnosis, Limit, Presence, RankWindow, ResourceChange, Stall, WorkerWindow, diagnose, session_verdict,
    simulation::Simulation,
};

fn verdict(simulation: Simulation) -> String {
    diagnosis(&simulation, 1).verdict()
}

#[test]
fn a_verdict_has_a_subject_numbers_and_a_remedy() {
    let base = Simulation::default();
    assert_eq!(
        verdict(base),
        "nothing to gain: the trainer sets the pace, as rank 0 waits 0.0 % of its time; 0.5 cores fewer would do"
    );
    assert_eq!(
        verdict(Simulation { cores: 0.5, ..base }),
        "rank 0 waits 61 % of its time: worker `node-0` is short of CPU (0.50 of its 0.50 cores are busy); 0.8 more cores \
         would give up to 2.6 times the rate, then the trainer sets the pace; a larger cache would give nothing"
    );
    assert_eq!(
        verdict(Simulation { call_s: 0.003, ..base }),
        "rank 0 waits 55 % of its time: the functions of the job are slow on worker `node-0` (a call takes 3.0 ms); \
         faster functions or more cores would give up to 2.2 times the rate, then the trainer sets the pace"
    );
    assert_eq!(
        verdict(Simulation { latency_s: 0.05, ..base }),
        "rank 0 waits 40 % of its time: the store answers worker `node-0` late (a request takes 50 ms, 50 ms of it until \
         the first byte, and 32.0 are in flight); more requests in flight or a larger cache would give up to 67 %, then \
         the trainer sets the pace; more cores would give nothing"
    );
    assert_eq!(
        verdict(Simulation { bandwidth: 50e6, ..base }),
        "rank 0 waits 53 % of its time: the store gives worker `node-0` 50.0 MB/s and no more; a faster store or a larger \
         cache would give up to 2.1 times the rate, then the trainer sets the pace; more cores would give nothing"
    );
}

#[test]
fn a_rank_that_gets_nothing_is_told_why_and_never_that_it_sets_the_pace() {
    let (rank, worker) = Simulation::default().run(1);
    let rank = RankWindow { samples: 0, waited_s: rank.seconds, ..rank };
    let stall =
        Stall { worker: "node-0".into(), stage: Stage::Fetch, waiting_for: "shard `a.tar`".into(), waited_ms: 7 };
    let verdict = |rank| diagnose(rank, Some(worker.clone())).verdict();
    assert_eq!(diagnose(rank.clone(), Some(worker.clone())).limit(), None);
    assert_eq!(
        verdict(RankWindow { stall: Some(stall), ..rank.clone() }),
        "rank 0 has got no sample in 4 s: stage `fetch` of worker `node-0` has waited 7 ms for shard `a.tar`"
    );
    assert_eq!(verdict(rank.clone()), "rank 0 has got no sample in 4 s, and worker `node-0` does not know why");
    assert_eq!(verdict(RankWindow { waited_s: 0.0, ..rank.clone() }), "rank 0 has asked for no batch in the last 4 s");
    let (_, slow) = Simulation { bandwidth: 1e6, ..Simulation::default() }.run(1);
    let starved = diagnose(rank.clone(), Some(slow));
    assert_eq!(starved.limit(), Some(Limit::StoreBandwidth));
    assert_eq!(
        starved.verdict(),
        "rank 0 has got no sample in 4 s: the store gives worker `node-0` 1.0 MB/s and no more"
    );
    let homeless = diagnose(rank, None::<WorkerWindow>);
    assert_eq!((homeless.limit(), homeless.what_if(&ResourceChange::default())), (Some(Limit::NoWorker), 0.0));
    assert_eq!(homeless.verdict(), "rank 0 has no home: no worker serves it");
}

fn of_session(ranks: &[(&str, f64)]) -> String {
    let diagnoses: Vec<Diagnosis> = (0..)
        .zip(ranks)
        .map(|(number, (worker, waiting))| {
            let (mut rank, mut window) = Simulation { cores: 0.5, ..Simulation::default() }.run(1);
            rank.rank = number;
            rank.waited_s = waiting * rank.seconds;
            (*worker).clone_into(&mut window.name);
            diagnose(rank, Some(window))
        })
        .collect();
    session_verdict(&diagnoses).unwrap()
}

#[test]
fn a_session_s_verdict_is_that_of_the_rank_that_waits_most_and_says_who_else_waits() {
    let one = of_session(&[("a", 0.3)]);
    assert!(one.starts_with("rank 0 waits 30 % of its time") && one.ends_with("would give nothing"), "{one}");
    let node = of_session(&[("a", 0.001), ("b", 0.3), ("a", 0.0), ("b", 0.5)]);
    assert!(node.starts_with("rank 3 waits 50 % of its time: worker `b`"), "{node}");
    assert!(node.ends_with("; 2 of 4 ranks wait, all of them for worker `b`"), "{node}");
    let scattered = of_session(&[("a", 0.2), ("b", 0.3), ("a", 0.0), ("b", 0.0)]);
    assert!(scattered.ends_with("; 2 of 4 ranks wait"), "{scattered}");
    assert!(of_session(&[("a", 0.2), ("b", 0.3)]).ends_with("; all 2 ranks wait"));
    assert!(
        of_session(&[("a", 0.0), ("b", 0.01)]).starts_with("nothing to gain: the trainer sets the pace, as rank 1")
    );
    assert_eq!(session_verdict([]), None);
}

#[test]
fn a_rank_that_takes_no_part_comes_before_those_that_wait() {
    let ranks = [Presence::Alive, Presence::Silent { for_ms: 7_400 }].map(|presence| {
        let (rank, worker) = Simulation { cores: 0.5, ..Simulation::default() }.run(1);
        let number = u32::from(presence != Presence::Alive);
        diagnose(RankWindow { rank: number, presence, ..rank }, Some(worker))
    });
    assert_eq!((ranks[1].limit(), ranks[1].what_if(&ResourceChange::default())), (Some(Limit::Silent), 0.0));
    let silent = "nothing was heard of rank 1 for 7 s: its process is stopped, hangs or is cut off";
    assert_eq!(session_verdict(&ranks).unwrap(), format!("{silent}; 1 of 2 ranks are like that"));
    let by = "session 9 (process 7 on b)".to_owned();
    let superseded = RankWindow { presence: Presence::Superseded { by }, ..RankWindow::default() };
    let found = diagnose(superseded, None::<WorkerWindow>);
    assert_eq!(found.limit(), Some(Limit::Superseded));
    assert_eq!(found.verdict(), "rank 0 gets no more batches: session 9 (process 7 on b) has taken its place");
}
