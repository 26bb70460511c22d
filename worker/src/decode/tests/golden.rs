//! Digests of decoded samples. They are part of the contract: a job gives the same bytes on every machine and in every
//! version. A change here changes every user's data.

use spdl_types::Fingerprint;

use super::*;

fn digest(bytes: &[u8], ops: &str, more: &str) -> String {
    let mut all = Vec::new();
    for id in 0..4 {
        let column = image_column(ops, more);
        all.extend(decode(&job(&[&column]), key(id), &[("jpg", bytes)]).unwrap().remove(0));
    }
    Fingerprint::of(&all).to_string()
}

#[test]
fn decoded_samples_never_change() {
    let train = "{ random_resized_crop = { size = 64 } }, { random_flip = {} }";
    let evaluate = "{ resize = { size = 100 } }, { center_crop = { size = 88 } }";
    let norm = "dtype = \"bf16\"\nlayout = \"nchw\"\nnormalise = { mean = [0.5, 0.4, 0.3], std = [0.2, 0.25, 0.3] }";
    let actual = [
        ("cat, train", digest(CAT, train, "")),
        ("cat, evaluate", digest(CAT, evaluate, "")),
        ("cat, train, normalised", digest(CAT, train, norm)),
        ("progressive coffee, train", digest(COFFEE_PROGRESSIVE, train, "")),
        ("CMYK coffee, evaluate", digest(COFFEE_CMYK, evaluate, "")),
        ("turned astronaut, train", digest(ASTRONAUT_EXIF, train, "")),
    ];
    let expected = [
        ("cat, train", "f43a06fa6b21ebbcccb785ddcc2d58eb"),
        ("cat, evaluate", "0d9241a1272353856718575bbe886927"),
        ("cat, train, normalised", "5ae2c65a054e7fda0f53f6b7797bcc01"),
        ("progressive coffee, train", "769e8cc4a6744198b52781b3f4b452b2"),
        ("CMYK coffee, evaluate", "a085dd5a0c9bbfd649afdb041991aaaf"),
        ("turned astronaut, train", "cb1faac557f11882601e16c273f42f5c"),
    ];
    assert_eq!(actual.each_ref().map(|(name, digest)| (*name, digest.as_str())), expected);
}
