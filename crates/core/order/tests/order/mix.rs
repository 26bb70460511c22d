//! How samples are mixed is frozen: the golden vectors of `tests/order/golden-mix-v1.json` must come out forever, and the
//! second implementation, in Python beside them, must agree.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test reads files and starts a process"
)]

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spdl_order::{MixMethod, MixParams};

use crate::twin::{FOLDER, python};

#[derive(Debug, Serialize, Deserialize)]
struct MixCase {
    seed: u64,
    samples: u64,
    #[serde(flatten)]
    params: MixParams,
    height: u32,
    width: u32,
}

#[derive(Deserialize)]
struct GoldenMix {
    config: MixCase,
    /// Of each sample of two epochs.
    mixed: Value,
}

fn golden() -> Vec<GoldenMix> {
    serde_json::from_str(&std::fs::read_to_string(format!("{FOLDER}/golden-mix-v1.json")).unwrap()).unwrap()
}

fn mixed(case: &MixCase) -> Value {
    let positions = (0..2).flat_map(|epoch| (0..case.samples).map(move |offset| (epoch, offset)));
    let mixes = positions.map(|(epoch, offset)| {
        let drawn = case.params.draw(case.seed, epoch, offset, case.samples)?;
        Some(match drawn.method {
            MixMethod::Mixup(own) => json!(["mixup", drawn.partner, own]),
            MixMethod::Cutmix(cut) => {
                let area = cut.area([case.height, case.width]);
                json!(["cutmix", drawn.partner, area.columns, area.rows])
            }
        })
    });
    json!(mixes.collect::<Vec<_>>())
}

#[test]
fn the_golden_vectors_come_out_of_both_implementations() {
    let cases = golden();
    assert!(cases.len() > 5);
    let configs: Vec<_> = cases.iter().map(|case| &case.config).collect();
    for (case, twin) in cases.iter().zip(python("mix.py", &configs)) {
        assert_eq!(mixed(&case.config), case.mixed, "{:?}", case.config);
        assert_eq!(twin, case.mixed, "{:?}", case.config);
    }
}
