//! Bad samples that workers report.

use crate::{
    coordinator::{
        Change,
        testing::{bad_sample, heartbeat, job, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{Refusal, WorkerHeartbeat},
};
use spdl_job::Job;
use spdl_types::{BadSample, Fingerprint, SampleId};

fn report(world: &mut CoordinatorWorld, samples: &[u64]) {
    let bad_samples = samples.iter().map(|sample| bad_sample(*sample)).collect();
    world.worker(WorkerHeartbeat { bad_samples, ..worker(1, "a") });
}

#[test]
fn a_bad_sample_is_logged_counted_and_kept_once() {
    let mut world = CoordinatorWorld::new();
    report(&mut world, &[7, 7]);
    report(&mut world, &[7]);
    let status = &world.core.status().jobs[0];
    assert_eq!((status.bad_sample_count, status.bad_fraction), (1, 0.0001));
    assert_eq!(status.bad_sample_list[0].key, "n01/7");
    let lines: Vec<&String> = world.log.iter().filter(|line| line.contains("bad sample")).collect();
    assert_eq!(lines, ["bad sample 7 of job `j` in shard `train-0.tar`, key `n01/7`: ends after 12 bytes"]);
    let kept = world.changes.iter().filter(|change| matches!(change, Change::PutBadSample(_))).count();
    assert_eq!(kept, 1);
}

#[test]
fn samples_of_a_view_have_the_numbers_of_the_dataset_and_others_are_below_their_count() {
    let mut world = CoordinatorWorld::new();
    world.create(Job { view: Some(Fingerprint(9)), samples: 100, ..job("part") });
    let beyond = BadSample { job: "part".to_owned(), ..bad_sample(7_000) };
    let bad_samples = vec![beyond, bad_sample(10_000)];
    world.worker(WorkerHeartbeat { bad_samples, ..worker(1, "a") });
    let counts = |name: &str| world.core.status().jobs.iter().find(|job| job.name == name).unwrap().bad_sample_count;
    assert_eq!([counts("part"), counts("j")], [1, 0]);
}

#[test]
fn above_the_fraction_the_job_fails_and_its_ranks_get_the_reason() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 2, 1));
    let ten: Vec<u64> = (0..10).collect();
    report(&mut world, &ten);
    world.heartbeat(heartbeat(id, 0, 1, 96)).expect("10 of 10000 is not above 0.001");
    report(&mut world, &[11]);
    let Err(Refusal::JobFailed { job, cause }) = world.heartbeat(heartbeat(id, 0, 1, 192)) else {
        panic!("it goes on")
    };
    assert_eq!(job, "j");
    for part in ["11 of 10000", "0.0011", "sample 0 in shard `train-0.tar`, key `n01/0`: ends after 12 bytes"] {
        assert!(cause.contains(part), "{part}: {cause}");
    }
    assert!(matches!(world.try_join(join(1, 2, 2)), Err(Refusal::JobFailed { .. })));
    assert_eq!(world.core.status().jobs[0].failed, Some(cause));
}

#[test]
fn a_failed_job_and_its_bad_samples_survive_a_restart() {
    let mut world = CoordinatorWorld::new();
    report(&mut world, &(0..11).collect::<Vec<_>>());
    let before = world.core.status().jobs;
    world.restart();
    assert_eq!(world.core.status().jobs, before);
    assert!(matches!(world.try_join(join(0, 2, 2)), Err(Refusal::JobFailed { .. })));
}

#[test]
fn a_sample_that_the_dataset_has_not_counts_for_nothing() {
    let mut world = CoordinatorWorld::new();
    report(&mut world, &[10_000, u64::MAX]);
    world.worker(WorkerHeartbeat {
        bad_samples: vec![BadSample { job: "none".into(), sample: SampleId(1), ..bad_sample(1) }],
        ..worker(1, "a")
    });
    assert_eq!(world.core.status().jobs[0].bad_sample_count, 0);
}
