//! The reader of command lines that the benchmarks and the long tests share.

use spdl_testkit::arguments::TestArguments;

fn arguments(text: &str) -> TestArguments {
    TestArguments::new(text.split_whitespace().map(str::to_owned))
}

#[test]
fn flags_and_values_are_taken_and_what_is_left_is_an_error() {
    let mut read = arguments("--json --seed 7 --case a");
    assert_eq!((read.flag("--json"), read.flag("--quiet")), (true, false));
    assert_eq!((read.value("--seed", "N"), read.value::<u64>("--repeats", "N")), (Ok(Some(7)), Ok(None)));
    let problem = read.finish().unwrap_err();
    assert_eq!(problem, "`--case` is none of --json, --quiet, --seed N, --repeats N");
    assert_eq!(
        arguments("--seed x").value::<u64>("--seed", "N").unwrap_err(),
        "`--seed x`: invalid digit found in string"
    );
    assert_eq!(arguments("--seed").value::<u64>("--seed", "N").unwrap_err(), "`--seed` expects N");
    assert_eq!(arguments("").finish(), Ok(()));
}
