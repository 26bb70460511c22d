//! Jobs are created once and never change.

use crate::{
    coordinator::{
        Answer, Change, MAX_JOBS, Role,
        testing::{bad_sample, heartbeat, job, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, JobReplacement, Refusal, ToCoordinator, WorkerHeartbeat},
};
use spdl_job::{Job, JobFile, SourceDatasetFacts, SourceDigest};
use spdl_order::DatasetFacts;
use spdl_types::{BadSample, Fingerprint, SessionId};

#[test]
fn submitting_the_same_job_again_does_nothing() {
    let mut world = CoordinatorWorld::new();
    let changes = world.changes.len();
    assert_eq!(world.create(job("j")), FromCoordinator::Done);
    assert_eq!(world.changes.len(), changes);
}

#[test]
fn a_different_job_of_the_same_name_is_refused_with_what_differs_in_words() {
    let mut world = CoordinatorWorld::new();
    let mut refused = |change: fn(&mut Job)| {
        let mut other = job("j");
        change(&mut other);
        let FromCoordinator::Refused(refusal) = world.create(other) else { panic!("taken") };
        refusal.to_string()
    };
    assert_eq!(
        refused(|job| job.seed = 18),
        "job `j` cannot be created: it is there already, and this one differs in `seed` (18, was 17); jobs do not change: \
         give this one another name, or remove the other"
    );
    type Edit = fn(&mut Job);
    let changes: [(Edit, &str); 5] = [
        (|job| job.order.window = 7, "`order.window` (7, was "),
        (|job| job.order.shuffle ^= true, "`shuffle` ("),
        (|job| job.dataset_fingerprint = spdl_types::Fingerprint(9), "`the dataset's content` (fingerprint "),
        (|job| job.columns[0].from = vec!["other".into()], "differs in column `"),
        (|job| job.columns[0].name = "other".into(), "differs in its columns (other, was "),
    ];
    for (change, expected) in changes {
        let text = refused(change);
        assert!(text.contains(expected), "`{expected}` is not in {text}");
    }
}

#[test]
fn other_sequences_and_another_mix_are_named_with_what_differs() {
    const PACKED: &str = "[[column]]\nname = \"t\"\nfrom = \"t\"\ndecode = \"tokens\"\n[sequence]\nseq_len = 64\n";
    const MIXED: &str = "[[column]]\nname = \"i\"\nfrom = \"i\"\ndecode = \"image\"\nops = [{ center_crop = 8 }]\n[[column]]\n\
                         name = \"o\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 10\n[mix]\n";
    let of = |keys: &str, documents: u64| {
        let text = format!("name = \"s\"\ndataset = \"b\"\nglobal_batch = 8\n{keys}");
        let facts = DatasetFacts { documents, tokens: 9 * documents, ..DatasetFacts::new(Fingerprint(7), 100, 10) };
        let mut file = JobFile::parse(&text, "job.toml").unwrap();
        file.sequence.iter_mut().for_each(|sequence| sequence.pools = Some(Fingerprint(9)));
        file.freeze(&facts).unwrap()
    };
    let differ = |[ours, theirs]: [Job; 2]| {
        let mut world = CoordinatorWorld::new();
        assert_eq!(world.create(ours), FromCoordinator::Done);
        let FromCoordinator::Refused(refusal) = world.create(theirs) else { panic!("taken") };
        refusal.to_string()
    };
    let packed = |keys: &str| of(&format!("{PACKED}{keys}"), 300);
    let before = "seq_len 64, best_fit, align 16, long split, pool_tokens 4194304";
    for (keys, now) in [
        ("max_documents = 3", "seq_len 64, best_fit, align 16, long split, max_documents 3, pool_tokens 4194304"),
        ("long = \"drop\"", "seq_len 64, best_fit, align 16, long drop, pool_tokens 4194304"),
        ("eos = 7", "seq_len 64, best_fit, align 16, long split, pool_tokens 4194304, eos 7"),
        ("method = \"chunk\"", "seq_len 64, chunk, cross_documents true, pool_tokens 4194304"),
    ] {
        let rest = "pad 0, eos_in_loss true; 300 documents, 2700 tokens, pools ";
        let text = differ([packed(""), packed(keys)]);
        assert!(text.contains(&format!("`sequence` ({now}, {rest}")), "{text}");
        assert!(text.contains(&format!(", was {before}, {rest}")), "{text}");
    }
    let other_documents = differ([packed(""), of(PACKED, 301)]);
    assert!(other_documents.contains("`sequence` (") && other_documents.contains("301 documents"), "{other_documents}");
    let mixed = |keys: &str| of(&format!("{MIXED}{keys}"), 100);
    let text = differ([mixed("mixup = 0.2"), mixed("cutmix = 1\np = 0.5")]);
    let rest = format!("cutmix_p 0.5, of i and o, pairs {} apart", mixed("mixup = 0.2").mix.unwrap().params.distance);
    assert!(text.contains(&format!("`mix` (cutmix 1, p 0.5, {rest}, was mixup 0.2, p 1, {rest})")), "{text}");
    let text = differ([mixed("mixup = 0.2"), Job { mix: None, ..mixed("mixup = 0.2") }]);
    assert!(text.contains("`mix` (none, was mixup 0.2, "), "{text}");
}

/// Returns a job that blends two datasets of 100 and 50 samples, of which the first has this weight.
pub(super) fn blended(weight: f64) -> Job {
    staged(weight, "")
}

/// Returns that job with more keys, and with tables of stages.
pub(super) fn staged(weight: f64, stages: &str) -> Job {
    let keys = if stages.is_empty() { "" } else { "total_samples = 100\nepochs = 9\n" };
    let source =
        |name: &str, weight| format!("[[source]]\nname = \"{name}\"\ndataset = \"/{name}\"\nweight = {weight}\n");
    let column = "[[column]]\nname = \"x\"\nfrom = \"x\"\ndecode = \"int\"";
    let sources = source("web", weight) + &source("code", 1.0);
    let text = format!("name = \"two\"\nglobal_batch = 8\n{keys}{sources}{stages}{column}");
    let facts = [100, 50].map(|samples| SourceDatasetFacts {
        given: DatasetFacts::new(Fingerprint(samples.into()), samples, 10),
        ids: samples,
    });
    JobFile::parse(&text, "job.toml").unwrap().freeze_all(&facts).unwrap()
}

#[test]
fn a_job_with_other_weights_is_another_one_and_counts_bad_samples_of_all_its_sources() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(blended(4.0)), FromCoordinator::Done);
    let FromCoordinator::Refused(refusal) = world.create(blended(3.0)) else { panic!("taken") };
    let text = refusal.to_string();
    assert!(
        text.contains("`source` (web: 49152 of 65536 from /web, ") && text.contains("was web: 52429 of 65536"),
        "{text}"
    );
    assert!(text.contains("`total_samples` (133, was 125)"), "{text}");
    let bad = |sample| BadSample { job: "two".to_owned(), ..bad_sample(sample) };
    let bad_samples = vec![bad(149), bad(150)];
    world.worker(WorkerHeartbeat { bad_samples, ..worker(1, "a") });
    let status = world.core.status();
    let job = status.jobs.iter().find(|job| job.name == "two").unwrap();
    assert_eq!((job.bad_sample_count, job.dataset.as_str()), (1, "web 80.0 % + code 20.0 %"));
    assert_eq!(job.bad_sample_list[0].source.as_deref(), Some("code"), "web has 100 samples");
}

#[test]
fn a_job_with_another_source_of_a_function_is_refused_and_one_without_is_the_same() {
    let mut world = CoordinatorWorld::new();
    let with = |source: Option<u128>| {
        let column = "[[column]]\nname = \"x\"\nfrom = \"cls\"\ndecode = \"int\"\ntransform = \"a:b\"";
        let text = format!("name = \"f\"\ndataset = \"b\"\nglobal_batch = 8\n{column}");
        let mut file = JobFile::parse(&text, "job.toml").unwrap();
        file.sources().for_each(|(_, digest)| *digest = source.map(SourceDigest));
        let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
        file.freeze(&facts).unwrap()
    };
    for same in [Some(1), None, Some(1)] {
        assert_eq!(world.create(with(same)), FromCoordinator::Done);
    }
    let FromCoordinator::Refused(refusal) = world.create(with(Some(2))) else { panic!("taken") };
    let text = refusal.to_string();
    assert!(text.contains("this one differs in the source of the function `a:b`; jobs do not change"), "{text}");
    let FromCoordinator::Refused(refusal) = world.create(Job { seed: 3, ..with(None) }) else { panic!("taken") };
    assert!(refusal.to_string().contains("this one differs in `seed` (3, was 0); jobs"), "{refusal}");
    let kept = world.send_as(Role::Worker, 1, ToCoordinator::DescribeJob { name: "f".to_owned() });
    assert_eq!(kept, Answer::Reply(FromCoordinator::Job(Box::new(with(Some(1))))));
}

#[test]
fn a_replaced_job_keeps_its_positions_only_where_they_mean_the_same_samples() {
    let mut world = CoordinatorWorld::new();
    let replaced = |world: &mut CoordinatorWorld, job: Job| match world.replace(job) {
        FromCoordinator::Replaced(replaced) => replaced,
        other => panic!("{other:?} is no replacement"),
    };
    assert_eq!(replaced(&mut world, job("k")), JobReplacement::Created);
    assert_eq!(replaced(&mut world, job("j")), JobReplacement::Unchanged);
    world.join(join(0, 1, 10));
    let longer = Job { epochs: 9, ..job("j") };
    let FromCoordinator::Refused(refusal) = world.replace(longer.clone()) else { panic!("its rank is alive") };
    assert!(matches!(refusal, Refusal::RunInUse { .. }), "{refusal}");
    assert_eq!(replaced(&mut world, job("j")), JobReplacement::Unchanged, "nothing changes, so nobody is disturbed");
    world.leave(heartbeat(1, 0, 10, 960));

    let acknowledged = |world: &CoordinatorWorld| world.core.status().jobs[0].acknowledged.offset;
    let changed = JobReplacement::Changed { differences: "`epochs` (9, was 3)".to_owned() };
    assert_eq!((replaced(&mut world, longer), acknowledged(&world)), (changed, 960));
    world.restart();
    let status = world.core.status();
    assert_eq!((status.jobs[0].epochs, status.jobs[0].runs[0].epochs, acknowledged(&world)), (9, 9, 960));

    let other = Job { seed: 18, ..job("j") };
    let new = JobReplacement::New { differences: "`seed` (18, was 17), `epochs` (3, was 9)".to_owned() };
    assert_eq!((replaced(&mut world, other.clone()), acknowledged(&world)), (new, 0));
    world.restart();
    assert!(world.core.status().jobs[0].runs.is_empty());
    let kept = world.send_as(Role::Worker, 1, ToCoordinator::DescribeJob { name: "j".to_owned() });
    assert_eq!(kept, Answer::Reply(FromCoordinator::Job(Box::new(other))));
    let request = ToCoordinator::ReplaceJob { toml: String::new(), origin: String::new() };
    let refused = world.send_as(Role::Client, 1, request);
    assert!(matches!(refused, Answer::Reply(FromCoordinator::Refused(Refusal::Role { .. }))), "{refused:?}");
}

#[test]
fn a_job_that_differs_outside_of_its_fingerprint_is_refused_with_the_keys() {
    let mut world = CoordinatorWorld::new();
    let FromCoordinator::Refused(refusal) = world.create(Job { epochs: 90, global_batch: 48, ..job("j") }) else {
        panic!("taken")
    };
    let text = refusal.to_string();
    assert!(text.contains("`epochs` (90, was 3)") && text.contains("`global_batch` (48, was 96)"), "{text}");
}

#[test]
fn a_job_is_durable_and_describes_itself() {
    let mut world = CoordinatorWorld::new();
    assert!(matches!(&world.changes[..], [Change::PutJob(record)] if *record.job == job("j")));
    let answer = world.send_as(Role::Worker, 1, ToCoordinator::DescribeJob { name: "j".to_owned() });
    assert_eq!(answer, Answer::Reply(FromCoordinator::Job(Box::new(job("j")))));
}

#[test]
fn an_unknown_job_is_refused_with_those_that_are_known() {
    let mut world = CoordinatorWorld::new();
    let mut lost = join(0, 1, 1);
    lost.job = "jj".to_owned();
    assert_eq!(world.try_join(lost), Err(Refusal::UnknownJob { job: "jj".into(), known: "j".into() }));
}

#[test]
fn removing_a_job_takes_its_sessions_with_it() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 2, 1));
    world.send_as(Role::Admin, 1, ToCoordinator::RemoveJob { name: "j".to_owned() });
    assert_eq!(world.heartbeat(heartbeat(id, 0, 1, 96)), Err(Refusal::UnknownSession { session: SessionId(id) }));
    assert!(matches!(world.try_join(join(0, 2, 1)), Err(Refusal::UnknownJob { .. })));
    world.restart();
    assert_eq!(world.core.status().jobs, []);
    assert_eq!(world.create(job("j")), FromCoordinator::Done);
    assert!(world.join(join(0, 2, 1)) > id, "a session id is never given twice");
}

#[test]
fn there_is_a_limit_to_jobs() {
    let mut world = CoordinatorWorld::new();
    for number in 1..MAX_JOBS {
        assert_eq!(world.create(job(&format!("j{number}"))), FromCoordinator::Done);
    }
    let FromCoordinator::Refused(refusal) = world.create(job("more")) else { panic!("taken") };
    assert_eq!(refusal.to_string(), "the number of jobs is 1001; the most is 1000");
    assert_eq!(world.create(job("j7")), FromCoordinator::Done, "one that is there is still there");
}

#[test]
fn what_is_wrong_with_a_job_file_is_shown_until_it_is_right() {
    let mut world = CoordinatorWorld::new();
    world.core.set_problem("dir/a.toml", Some("no such bucket".to_owned()));
    assert_eq!(world.core.status().job_problems[0].problem, "no such bucket");
    world.core.set_problem("dir/a.toml", None);
    assert_eq!(world.core.status().job_problems, []);
}
