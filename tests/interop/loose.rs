//! Trains on pictures as they lie in folders, without shards.

use spdl_cli::pictures::write_image_folder;
use spdl_testkit::processes::{ctl, run};

use super::trained::trains_end_to_end;

const SAMPLES: u64 = 40;
const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";

#[tokio::test]
async fn a_job_on_loose_files_trains_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    write_image_folder(&pictures, SAMPLES, 5, |_| {}).unwrap();
    let report = run(ctl().arg("index").arg(&pictures).arg("--json")).json();
    assert_eq!(report["samples"], SAMPLES, "{report}");
    trains_end_to_end(&pictures, SAMPLES, COLUMNS).await;
}
