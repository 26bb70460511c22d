//! A state is moved from one coordinator's disk into etcd.

use spdl_testkit::{
    etcd::EtcdProcess,
    processes::{Cluster, ServerProcess, ctl, run},
};

#[test]
fn a_state_moves_from_a_disk_into_etcd_and_replaces_none_that_is_there_unasked_or_in_use() {
    let Some(etcd) = EtcdProcess::start() else { return };
    let (_dataset, mut cluster) = Cluster::with_job(0, [24, 8], "first", "epochs = 3");
    let (state, file) = (cluster.path("state"), cluster.path("state.jsonl"));
    cluster.coordinator = None;
    let of_state = |action: &str| {
        let mut command = ctl();
        command.args(["coord", "state", action]);
        command
    };
    assert!(run(of_state("export").arg("--state").arg(&state).arg("--out").arg(&file)).status.success());

    let place = format!("etcd://{}/moved", etcd.address);
    let import = |further: &[&str]| run(of_state("import").arg(&file).args(["--state", &place]).args(further));
    let done = import(&[]);
    let expected = format!("state `{place}` has 1 jobs and 0 sessions\n");
    assert!(done.stdout.starts_with(&expected) && done.stdout.contains("`--ca`"), "{}{}", done.stdout, done.stderr);
    import(&[])
        .error(&[&format!("state `{place}` is not empty: it has 1 job(s) and 0 session(s)"), "--force` replaces"]);
    assert!(import(&["--force"]).status.success());

    let mut coordinator = ctl();
    coordinator.args([
        "coord",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--name",
        "leader",
        "--state",
        &place,
    ]);
    let mut coordinator = ServerProcess::spawn(coordinator.arg("--ca").arg(state.join("ca")));
    cluster.address = coordinator.line()["quic"].as_str().expect("an address").to_owned();
    let listed = run(&mut cluster.ctl("admin", ["job", "list", "--json"])).json();
    assert_eq!((&listed[0]["name"], &listed[0]["epochs"]), (&"first".into(), &3.into()));
    import(&["--force"]).error(&[&format!("state `{place}` is in use: coordinator `leader` leads"), "hint: stop all"]);
}
