//! Help, completions and man pages.

use std::{fs, process::Command};

use crate::processes::{ctl, run};

#[test]
fn completions_are_scripts_that_a_shell_can_read() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(ctl().args(["completions", shell])).stdout;
        assert!(
            ["replay", "completions", "--receipt"].iter().all(|word| script.contains(word)) || shell == "fish",
            "{script}"
        );
        assert!(script.contains("replay"), "{script}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("spdl-ctl.bash");
    fs::write(&path, run(ctl().args(["completions", "bash"])).stdout).expect("it is written");
    let typed = format!(
        "source {} && COMP_WORDS=(spdl-ctl pl) COMP_CWORD=1 && complete=$(complete -p spdl-ctl) && complete=${{complete#*-F }} && \
         ${{complete%% *}} spdl-ctl pl spdl-ctl && echo \"${{COMPREPLY[@]}}\"",
        path.display()
    );
    let completed = run(Command::new("bash").args(["--norc", "-c", &typed]));
    assert_eq!(completed.stdout.trim(), "plan", "{}", completed.stderr);
}

#[test]
fn every_subcommand_has_a_man_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pages = folder.path().join("man1");
    assert!(run(ctl().arg("man").arg(&pages)).status.success());
    let help = run(ctl().arg("--help")).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut count = 0;
    for name in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let page = fs::read_to_string(pages.join(format!("spdl-ctl-{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains("Examples"), "{name}: {page}");
        count += 1;
    }
    assert!(count >= 17, "{help}");
}

#[test]
fn help_has_examples_and_defaults() {
    let help = run(ctl().args(["pull", "--help"])).stdout;
    for part in ["Examples:\n  spdl-ctl pull ", "[default: 4]", "[default: auto]", "[default: 300]"] {
        assert!(help.contains(part), "`{part}` is not in\n{help}");
    }
}
