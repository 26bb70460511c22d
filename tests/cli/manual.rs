//! Help, completions and man pages.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;
use spdl_job::JobFile;
use spdl_order::DatasetFacts;
use spdl_testkit::{
    processes::{ctl, run},
    root,
};
use spdl_types::Fingerprint;

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

/// Collects all keys of a JSON Schema, and all words that are values of keys.
fn words_of(schema: &Value, keys: &mut BTreeSet<String>, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(entries) => {
            for (entry, value) in entries {
                match (entry.as_str(), value) {
                    ("properties", Value::Object(properties)) => keys.extend(properties.keys().cloned()),
                    ("const", Value::String(word)) => drop(words.insert(word.clone())),
                    ("enum", Value::Array(all)) => {
                        words.extend(all.iter().filter_map(Value::as_str).map(str::to_owned))
                    }
                    _ => {}
                }
                words_of(value, keys, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| words_of(item, keys, words)),
        _ => {}
    }
}

#[test]
fn the_reference_of_job_files_has_a_row_for_each_key_and_word_of_the_schema_and_no_other_key() {
    let schema = fs::read_to_string(root().join("examples/job.schema.json")).expect("a schema");
    let page = fs::read_to_string(root().join("docs/reference/job.md")).expect("a page");
    let (mut keys, mut words) = (BTreeSet::new(), BTreeSet::new());
    words_of(&serde_json::from_str(&schema).expect("JSON"), &mut keys, &mut words);
    // What is code in the first cell of each row that begins with code, or with a link from code.
    let first = |line: &'_ str| -> Vec<String> {
        let row = line.strip_prefix("| `").or_else(|| line.strip_prefix("| [`"));
        let cell = row.and_then(|rest| rest.split('|').next()).unwrap_or_default();
        cell.split('`').step_by(2).filter(|word| !word.trim().is_empty()).map(str::to_owned).collect()
    };
    let rows: BTreeSet<String> = page.lines().flat_map(first).collect();
    let missing: Vec<_> = keys.difference(&rows).collect();
    assert!(missing.is_empty(), "keys without a row in docs/reference/job.md: {missing:?}");
    let unknown: Vec<_> = rows.iter().filter(|row| !keys.contains(*row) && !words.contains(*row)).collect();
    assert!(unknown.is_empty(), "rows of docs/reference/job.md that the schema does not know: {unknown:?}");
    for word in words {
        assert!(page.contains(&format!("`{word}`")), "docs/reference/job.md lacks the word `{word}`");
    }
}

/// Returns the code blocks of a page in a language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Returns a whole job that has what a page shows of one: with the keys that it has to have, and an `image` column.
fn completed(part: &str) -> String {
    let tables = if part.starts_with('[') { 0 } else { part.find("\n[").map_or(part.len(), |end| end + 1) };
    let (top, tables) = part.split_at(tables);
    let has = |text: &str, key: &str| text.lines().any(|line| line.starts_with(key));
    let mut job = top.to_owned();
    for (key, line) in
        [("name =", "name = \"a\"\n"), ("dataset =", "dataset = \"b\"\n"), ("global_batch =", "global_batch = 64\n")]
    {
        if !has(top, key) {
            job.push_str(line);
        }
    }
    job.push_str(tables);
    if !has(tables, "name = \"image\"") {
        let column =
            "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ random_resized_crop = 224 }]\n";
        job.push_str(column);
    }
    job
}

#[test]
fn every_part_of_a_job_that_the_guide_shows_is_valid() {
    let facts = DatasetFacts::new(Fingerprint(7), 1_000_000, 10_000);
    for (name, least) in [("job.md", 8), ("columns.md", 3), ("views.md", 2)] {
        let page = fs::read_to_string(root().join("docs/guide").join(name)).expect("a page");
        let parts = blocks(&page, "toml");
        assert!(parts.len() >= least, "{name} has {} parts of jobs", parts.len());
        for part in parts {
            let job = JobFile::parse(&completed(part), name).and_then(|mut file| {
                // There is no dataset that a view could be evaluated on.
                let view = file.view.take().map_or(Ok(()), |view| view.check());
                view.unwrap_or_else(|(key, problem)| panic!("{name}: `view.{key}` {problem}, in\n{part}"));
                file.freeze(&facts)
            });
            job.unwrap_or_else(|error| panic!("{name}: {error}, in\n{part}"));
        }
    }
}
