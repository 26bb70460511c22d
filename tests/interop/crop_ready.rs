//! Crop-ready datasets: packed, verified, unpacked, and decoded by Pillow.

use std::fs;

use serde_json::Value;
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
    root,
};

/// Pictures of three classes: each picture's path in the source and, after a colon, in the repository.
const PICTURES: [&str; 6] = [
    "space/rocket.jpg:assets/photos/rocket.jpg",
    "space/hubble.deep.field.jpeg:assets/photos/hubble_deep_field.jpg",
    "people/grace_hopper.jpg:assets/photos/grace_hopper.jpg",
    "people/astronaut.jpg:assets/jpegs/astronaut_444.jpg",
    "things/coffee.jpg:assets/jpegs/coffee_progressive.jpg",
    "things/brick.png:assets/photos/brick.png",
];

#[test]
fn what_is_packed_crop_ready_is_proved_and_unpacked_to_pictures_that_pillow_sees_as_before() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for picture in PICTURES {
        let (to, from) = picture.split_once(':').unwrap();
        fs::create_dir_all(path("photos").join(to).parent().unwrap()).unwrap();
        fs::copy(root().join(from), path("photos").join(to)).unwrap();
    }
    let packed = run(ctl().arg("pack").arg(path("photos")).arg(path("ready")).args(["--crop-ready", "--json"])).json();
    assert_eq!((&packed["records"], &packed["crop_ready_pictures"]), (&6.into(), &5.into()));

    let verify = |dataset: &str, against: &str| {
        let mut verify = ctl();
        verify.arg("verify").arg(path(dataset));
        if !against.is_empty() {
            verify.arg("--against").arg(path(against));
        }
        verify
    };
    assert_eq!(run(verify("ready", "").arg("--json")).json()["faults"], Value::Array(vec![]));
    let compared = run(verify("ready", "photos").arg("--json")).json();
    assert_eq!((&compared["same_pictures"], &compared["same_fields"]), (&6.into(), &6.into()));
    let shown = run(&mut verify("ready", "photos")).stdout;
    assert!(shown.contains("0 faults") && shown.contains("6 pictures have the coefficients of"), "{shown}");

    let unpack = |to: &str| run(ctl().arg("unpack").arg(path("ready")).arg(path(to)));
    assert!(unpack("out").stdout.contains("12 files of 6 records"));
    unpack("out").error(&["error:", "out` is not empty", "hint:", "nothing is overwritten"]);
    let (before, after): (Vec<_>, Vec<_>) = PICTURES
        .map(|picture| {
            let to = picture.split_once(':').unwrap().0;
            (
                path("photos").join(to),
                path("out").join(
                    to.replace("deep.field.jpeg", "deep.field.jpg").replace("hubble.deep.field", "hubble_deep_field"),
                ),
            )
        })
        .into_iter()
        .unzip();
    let seen = |files: Vec<_>| run_script(&python, "tests/interop/pixels.py", files);
    assert_eq!(seen(after), seen(before));

    // Replace a picture, and add one.
    fs::copy(path("photos/space/rocket.jpg"), path("photos/people/grace_hopper.jpg")).unwrap();
    fs::copy(path("photos/space/rocket.jpg"), path("photos/space/later.jpg")).unwrap();
    let differs = run(&mut verify("ready", "photos"));
    let expected =
        ["record `people/grace_hopper`: field `jpg` has other coefficients", "record `space/later`: is not there"];
    assert!(
        !differs.status.success() && expected.iter().all(|part| differs.stdout.contains(part)),
        "{}",
        differs.stdout
    );
    run(&mut verify("ready", "nowhere")).error(&["error:", "nowhere` cannot be read"]);
}
