//! axe-core, which finds faults of accessibility in a page. npm installs it once into the build directory.

use std::{fs, process::Command};

use spdl_testkit::{browser::Browser, target};

const PACKAGE: &str = "axe-core@4.14.1";

/// Returns the script. Returns `None`, and prints the reason, where npm cannot install it.
pub(crate) fn script() -> Option<String> {
    let folder = target().join("axe");
    let path = folder.join("node_modules/axe-core/axe.min.js");
    if !path.is_file() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(&folder)
            .arg(PACKAGE);
        let installed = npm.output().map_err(|error| error.to_string()).and_then(|output| {
            if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        });
        if let Err(reason) = installed {
            eprintln!("accessibility is not checked: npm has no {PACKAGE}: {reason}");
            return None;
        }
    }
    Some(fs::read_to_string(path).expect("axe-core is installed"))
}

/// Returns the faults that axe finds in the page as it is, each with the elements that have it.
pub(crate) fn violations(browser: &Browser, script: &str) -> Vec<String> {
    browser.run(script);
    let found = browser.run_async(
        "const text = (fault) => `${fault.id}: ${fault.help}: ${fault.nodes.map((node) => node.html).join(' ')}`;
         axe.run().then(
             ({ passes, violations }) => done(passes.length ? violations.map(text) : ['axe has checked nothing']),
             (error) => done([String(error)]))",
    );
    let faults = found.as_array().expect("a list of faults");
    faults.iter().map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect()
}
