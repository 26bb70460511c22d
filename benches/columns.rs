//! The columns of the jobs that benchmarks of a feed run.

/// A random crop of 224 pixels a side, flipped or not, and a label.
pub(crate) const COLUMNS: &str = r#"
    [[column]]
    name = "image"
    from = "jpg"
    decode = "image"
    ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]
    [[column]]
    name = "label"
    from = "cls"
    decode = "int"
"#;
