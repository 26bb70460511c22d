//! A job as a user writes it (TOML, unknown keys refused), and the step from there to a valid [`Job`].

use serde::{Deserialize, Serialize};

use super::{
    Column, ColumnFile, ColumnKind, DecodeFile, Job, JobError, JobFile, KeyProblem, Mix, SampleCostFile, Sequence,
    SourceDatasetFacts, TokensKeys,
    check::wrong,
    decoded_columns, reader,
    sequence::{NO_MIX, no_tokens},
};
use spdl_order::{DatasetFacts, MixParams, OrderParams};
use spdl_types::Fingerprint;

/// Length of the longest text of a job file, in bytes.
pub const MAX_JOB_FILE_BYTES: usize = 7 << 20;

/// The `[order]` table of a job file: the quality of the shuffle against the cost of reading. A key that is left out is
/// chosen when the job is created; it never depends on the number of ranks or workers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderFile {
    /// The number of lanes that the dataset is dealt to. A batch takes the same number of samples from each. More lanes
    /// need more cache, because more blocks are open at once. Default: the largest divisor of `global_batch` that
    /// leaves 64 blocks for each lane.
    pub lanes: Option<u32>,
    /// The number of consecutive samples of a lane that are shuffled among themselves. A larger window shuffles better,
    /// and a worker holds more blocks until they are used up. Default: the samples of `global_batch / lanes` blocks, or
    /// of fewer above 8 MiB, which take 512 MiB in all lanes.
    pub window: Option<u64>,
}

impl JobFile {
    /// Reads the text of a job file; `origin` names the file in errors.
    ///
    /// # Errors
    /// [`JobError::TooLong`] for a text above [`MAX_JOB_FILE_BYTES`], [`JobError::Syntax`] with line and column, and
    /// [`JobError::Value`] with the line and a text that names the key.
    pub fn parse(text: &str, origin: &str) -> Result<Self, JobError> {
        if text.len() > MAX_JOB_FILE_BYTES {
            return Err(JobError::TooLong { origin: origin.to_owned(), bytes: text.len() });
        }
        let table: toml::Table = toml::from_str(text)
            .map_err(|source| JobError::Syntax { origin: origin.to_owned(), source: Box::new(source) })?;
        reader::read(&table).map_err(|fault| {
            let line = fault.line(text).map_or_else(String::new, |line| format!(", line {line}"));
            JobError::Value { origin: format!("job file `{origin}`{line}"), problem: fault.problem }
        })
    }

    /// Reads a job from a table that was parsed already; `origin` names the job in errors.
    ///
    /// # Errors
    /// [`JobError::Value`] with a text that names the key.
    pub fn from_table(table: &toml::Table, origin: &str) -> Result<Self, JobError> {
        reader::read(table).map_err(|fault| JobError::Value { origin: origin.to_owned(), problem: fault.problem })
    }

    /// Checks every key and freezes the order for the dataset of a job that has no sources, see [`freeze_all`](Self::freeze_all). For a
    /// job with a view, the view must have been evaluated, and `facts` are those of the view.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first invalid value, [`JobError::Empty`] for a dataset without samples,
    /// [`JobError::NoBatch`] if the samples never fill a batch.
    pub fn freeze(&self, facts: &DatasetFacts) -> Result<Job, JobError> {
        let columns = self.check()?;
        let view = match &self.view {
            None => None,
            Some(view) => Some(view.samples.ok_or_else(|| {
                let problem = "is not evaluated: `spdl-ctl job submit` does that, or set `samples` to what \
                               `spdl-ctl plan` prints";
                wrong(&self.name, "`view`", problem)
            })?),
        };
        let order = self.order_or(OrderParams::default_for(facts, self.global_batch, self.shuffle));
        let lanes = if order.shuffle { order.lanes } else { 1 };
        let mix = self.mix(&columns, MixParams::default_distance(lanes, self.global_batch))?;
        let sequence = self
            .sequence_keys()?
            .map(|keys| Box::new(Sequence { documents: facts.documents, tokens: facts.tokens, ..keys }));
        if self.sequence.as_ref().is_some_and(|sequence| sequence.pools.is_none()) {
            let problem =
                "is not evaluated: `spdl-ctl job submit` does that, or set `pools` to what `spdl-ctl plan` prints";
            return Err(wrong(&self.name, "`sequence`", problem));
        }
        if self.cost.as_ref().is_some_and(SampleCostFile::is_unmeasured) {
            let problem =
                "is not measured: `spdl-ctl job submit` does that, or set `sizes` to what `spdl-ctl plan` prints";
            return Err(wrong(&self.name, "`cost`", problem));
        }
        let job = Job { view, mix, sequence, columns, ..self.job(facts.fingerprint, facts.samples, order) };
        job.check()?;
        if !facts.has_classes {
            self.check_without_classes(&job.columns)?;
        }
        Ok(job)
    }

    /// Checks that no column needs classes, for a dataset that lists none.
    pub(super) fn check_without_classes(&self, columns: &[Column]) -> Result<(), JobError> {
        for column in decoded_columns(columns) {
            column
                .check_without_classes(columns)
                .map_err(|(key, problem)| wrong(&self.name, format!("column `{}`: `{key}`", column.name), problem))?;
        }
        Ok(())
    }

    /// Returns the order's parameters that the file has, and the others from `default`.
    fn order_or(&self, default: OrderParams) -> OrderParams {
        let OrderFile { lanes, window } = self.order.unwrap_or_default();
        OrderParams { lanes: lanes.unwrap_or(default.lanes), window: window.unwrap_or(default.window), ..default }
    }

    fn mix(&self, columns: &[Column], distance: u32) -> Result<Option<Mix>, JobError> {
        let of_key = |(key, problem): KeyProblem| wrong(&self.name, format!("`mix.{key}`"), problem);
        self.mix.as_ref().map(|mix| mix.read(columns, distance).map_err(of_key)).transpose()
    }

    /// Returns how documents are packed, with the defaults of keys that are left out.
    ///
    /// # Errors
    /// [`JobError::Key`] for an invalid value.
    pub fn sequence_keys(&self) -> Result<Option<Sequence>, JobError> {
        let of_key = |(key, problem): KeyProblem| wrong(&self.name, format!("`sequence.{key}`"), problem);
        if self.sequence.is_some() && self.mix.is_some() {
            return Err(wrong(&self.name, "`mix`", NO_MIX));
        }
        self.sequence.as_ref().map(|sequence| sequence.read().map_err(of_key)).transpose()
    }

    /// Converts how the columns are decoded, each by itself.
    fn kinds<'f>(&'f self, sequence: Option<&Sequence>) -> Result<Vec<(&'f str, ColumnKind)>, JobError> {
        let kind = |column: &'f ColumnFile| {
            // Before what the keys of another kind lack.
            if sequence.is_some() && column.decode.reads_field() && !matches!(column.decode, DecodeFile::Tokens(_)) {
                return Err(of_column(&self.name, column, no_tokens(column.decode.name())));
            }
            let mut kind = column.kind().map_err(|problem| of_column(&self.name, column, problem))?;
            if let (Some(Sequence { seq_len, .. }), ColumnKind::Tokens(tokens)) = (sequence, &mut kind) {
                if matches!(column.decode, DecodeFile::Tokens(TokensKeys { max_rows: Some(_), .. })) {
                    let problem =
                        "is for jobs without `sequence`; `long` there is for documents that are longer than one";
                    return Err(of_column(&self.name, column, ("max_rows", problem.to_owned())));
                }
                tokens.pack(*seq_len);
            }
            Ok((column.name.as_str(), kind))
        };
        self.column.iter().map(kind).collect()
    }

    /// Checks everything that can be checked without the dataset.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first invalid value.
    pub fn check(&self) -> Result<Vec<Column>, JobError> {
        self.check_sources()?;
        self.check_end()?;
        let sequence = self.sequence_keys()?;
        let kinds = self.kinds(sequence.as_ref())?;
        let read = |(column, (_, kind)): (&ColumnFile, &(&str, ColumnKind))| {
            column.read(kind.clone(), (&self.column, &kinds)).map_err(|problem| of_column(&self.name, column, problem))
        };
        let decoded = self.column.iter().zip(&kinds).map(read).collect::<Result<Vec<_>, _>>()?;
        let mut columns = decoded.clone();
        for function in &self.function {
            function.add(&decoded, &mut columns).map_err(|(key, problem)| {
                wrong(&self.name, format!("function `{}`: `{key}`", function.call), problem)
            })?;
        }
        let order = self.order_or(OrderParams { version: 1, lanes: 1, window: 1, shuffle: self.shuffle });
        let job = if self.source.is_empty() {
            let sequence = sequence.map(Box::new);
            Job { sequence, columns, ..self.job(Fingerprint(0), 1, order) }
        } else {
            let any = SourceDatasetFacts { given: DatasetFacts::new(Fingerprint(0), 1, 1), ids: 1 };
            let sources = self.read_sources(&vec![any; self.source.len()])?;
            Job { columns, stages: self.read_stages()?, ..self.job_of_sources(sources, 1, sequence) }
        };
        job.check_parts()?;
        self.mix(&job.columns, 1)?;
        if let Some(view) = &self.view {
            view.check().map_err(|(key, problem)| wrong(&self.name, format!("`view.{key}`"), problem))?;
            if view.sampling.is_some() && self.sequence.is_some() {
                let problem = "is for jobs without `sequence`, which has each document once; give each kind of documents a job of its own";
                return Err(wrong(&self.name, "`view.sampling`", problem));
            }
        }
        Ok(job.columns)
    }
}

/// Returns the error of a key of a column.
fn of_column(job: &str, column: &ColumnFile, (key, problem): KeyProblem) -> JobError {
    wrong(job, format!("column `{}`: `{key}`", column.name), problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeFile, ImageKeys};
    use spdl_types::DType;

    const FACTS: DatasetFacts = DatasetFacts::new(Fingerprint(7), 1_281_167, 14_000);

    fn example() -> String {
        r#"
            name = "imagenet-train"
            dataset = "s3://bucket/imagenet/train"
            seed = 17
            global_batch = 2048
            epochs = 90
            [[column]]
            name = "image"
            from = "jpg|png"
            decode = "image"
            ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]
            layout = "nhwc"
            [[column]]
            name = "label"
            from = "cls"
            decode = "int"
        "#
        .to_owned()
    }

    fn error_of(text: &str) -> String {
        JobFile::parse(text, "job.toml").and_then(|file| file.freeze(&FACTS)).unwrap_err().to_string()
    }

    #[test]
    fn the_example_of_the_design_is_valid() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        assert_eq!(job.order.lanes, 128, "the largest divisor of 2048 that leaves 64 of 14000 blocks per lane");
        assert_eq!(job.columns[0].from, ["jpg", "png"]);
        assert_eq!(job.columns[0].sample_shape(), Some(vec![224, 224, 3]));
        assert_eq!(job.columns[1].dtype, DType::I64);
    }

    #[test]
    fn large_blocks_make_small_windows_and_each_has_a_block_at_least() {
        let window = |global_batch, block_bytes| {
            let facts = DatasetFacts { samples: 1000 * FACTS.blocks, block_bytes, ..FACTS };
            OrderParams::default_for(&facts, global_batch, true).window
        };
        assert_eq!([1 << 20, 8 << 20, 100 << 20].map(|bytes| window(1024, bytes)), [8000, 8000, 1000]);
        assert_eq!([8 << 20, 16 << 20, 100 << 20].map(|bytes| window(7 * 211, bytes)), [7000, 1000, 1000]);
        // Row groups of 128 MB of a dataset that is too small for lanes: eleven are in use, half of a worker's memory.
        let facts = DatasetFacts { samples: 528 * 42, blocks: 42, block_bytes: 42 << 20, ..FACTS };
        assert_eq!(OrderParams::default_for(&facts, 128, true).window, 528 * 5);
    }

    #[test]
    fn a_job_survives_its_own_serialisation() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
        assert_eq!(back.fingerprint(), job.fingerprint());
    }

    #[test]
    fn the_fingerprint_follows_the_stream_and_nothing_else() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        let same = Job { name: "other".into(), global_batch: 64, epochs: 3, ..job.clone() };
        assert_eq!(same.fingerprint(), job.fingerprint());
        let other = Job { seed: 18, ..job.clone() };
        assert_ne!(other.fingerprint(), job.fingerprint());
    }

    #[test]
    fn names_need_a_list_of_them() {
        let facts = DatasetFacts { has_classes: false, ..FACTS };
        let of = |decode: &str| {
            let text = example().replace("decode = \"int\"", decode);
            assert!(JobFile::parse(&text, "job.toml").unwrap().freeze(&FACTS).is_ok(), "{decode}");
            JobFile::parse(&text, "job.toml").unwrap().freeze(&facts).map_err(|error| error.to_string())
        };
        let error = of("decode = \"category\"").unwrap_err();
        assert!(error.contains("column `label`: `names` is missing, and the dataset lists no classes"), "{error}");
        let error = of("decode = \"box_class\"").unwrap_err();
        assert!(error.contains("column `label`: `decode` is `box_class`, and the dataset lists no classes"), "{error}");
        assert!(of("decode = \"category\"\nnames = [\"cat\"]").is_ok() && of("decode = \"int\"").is_ok());
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = error_of(&example().replace("seed = 17", "sede = 17"));
        assert_eq!(error, "job file `job.toml`, line 4: there is no key `sede`; did you mean `seed`?");
    }

    /// Each wrong piece of a job file, with the error that it gives.
    const WRONG: [(&str, &str, &str); 25] = [
        (
            "global_batch = 2048",
            "global_batch = \"64\"",
            "global_batch expects a whole number, not the text \"64\"; leave out the quotes",
        ),
        (
            "global_batch = 2048",
            "global_batch = -1",
            "global_batch expects a whole number from 0 to 4294967295, not -1",
        ),
        ("global_batch = 2048", "global_batch = 64.0", "global_batch expects a whole number, not 64.0"),
        ("global_batch = 2048", "", "`global_batch` is missing"),
        ("seed = 17", "shuffle = \"no\"", "shuffle expects true or false, not the text \"no\""),
        ("seed = 17", "seed = 2026-11-22", "seed expects a whole number, not a date"),
        ("seed = 17", "epoch_end = \"dorp\"", "epoch_end cannot be `dorp`; did you mean `drop`?"),
        (
            "seed = 17",
            "epoch_end = \"never\"",
            "epoch_end cannot be `never`; it can be drop, pad, continuous, exact, partial",
        ),
        ("seed = 17", "epoch_end = 3", "epoch_end expects one of drop, pad, continuous, exact, partial, not 3"),
        ("seed = 17", "order = { lane = 3 }", "order: there is no key `lane`; did you mean `lanes`?"),
        ("seed = 17", "order = 3", "order expects a table of keys, not 3"),
        ("seed = 17", "order = { lanes = \"all\" }", "order: lanes expects a whole number, not the text \"all\""),
        ("from = \"cls\"", "", "column label: `from` is missing"),
        ("from = \"cls\"", "form = \"cls\"", "column label: there is no key `form`; did you mean `from`?"),
        ("from = \"cls\"", "from = [\"cls\"]", "column label: from expects a text in quotes, not a list"),
        (
            "decode = \"int\"",
            "decode = \"integer\"",
            "column label: decode cannot be `integer`; it can be image, int, json, bytes, box_class, tensor, float, text, category, mask, boxes, box_labels, one_hot, geometry, image_size, bool, tokens, labels, positions, document_lengths, document_ids, loss_mask, global_lengths, audio, audio_length, audio_rate, video, video_times, video_mask, is_pad",
        ),
        ("decode = \"int\"", "", "column label: `decode` is missing"),
        (
            "layout = \"nhwc\"",
            "normalise = { mean = 0.5, std = [1, 1, 1] }",
            "column image, normalise: mean expects a list, not 0.5",
        ),
        (
            "{ random_flip = {} }",
            "7",
            "column image: ops[1] expects a step, such as { resize = { size = 256 } } or \"random_flip\", not 7",
        ),
        (
            "{ random_flip = {} }",
            "{ resise = 256 }",
            "column image, ops[1]: there is no step `resise`; did you mean `resize`?",
        ),
        ("{ random_flip = {} }", "\"resize\"", "column image, ops[1]: resize expects { size = 256 }"),
        (
            "{ random_flip = {} }",
            "{ resize = {} }",
            "column image, ops[1]: resize expects { size = 256 }; `size` is missing",
        ),
        ("{ random_flip = {} }", "{ resize = true }", "column image, ops[1]: resize expects { size = 256 }, not true"),
        (
            "{ random_flip = {} }",
            "{ resize = \"224\" }",
            "column image, ops[1]: resize expects { size = 256 }, not the text \"224\"",
        ),
        (
            "{ random_flip = {} }",
            "{ resize = { size = \"224\" } }",
            "column image, ops[1].resize: size expects a number of pixels or [height, width], not the text \"224\"; leave out the quotes",
        ),
    ];

    #[test]
    fn an_error_in_a_key_is_in_words_with_its_column_and_its_line() {
        for (from, to, expected) in WRONG {
            let text = example().replacen(from, to, 1);
            assert_ne!(text, example(), "{from}");
            let error = error_of(&text);
            let (place, problem) = error.split_once(": ").unwrap();
            assert_eq!(problem, expected, "{to}");
            // For a missing key the line is that of the table that lacks it, unless that table is the whole file.
            let line = place.strip_prefix("job file `job.toml`, line ").and_then(|line| line.parse::<usize>().ok());
            let line = line.map(|line| text.lines().nth(line - 1).unwrap_or_default());
            match line {
                Some(line) => {
                    assert!(to.is_empty() || line.contains(to) || to.contains(line.trim()), "{line} for {to}")
                }
                None => assert_eq!(place, "job file `job.toml`", "{to}"),
            }
        }
        let one_table = example().replacen("[[column]]", "[column]", 1);
        let one_table = &one_table[..one_table.rfind("[[column]]").unwrap()];
        let expected = "job file `job.toml`, line 7: write [[column]] with two brackets: a job has a list of columns";
        assert_eq!(error_of(one_table), expected);
        let two = example().replace("{ random_flip = {} }", "{ resize = 9, random_flip = {} }");
        assert!(error_of(&two).contains("ops[1]: has two steps in one table"), "{}", error_of(&two));
    }

    #[test]
    fn a_key_of_another_kind_is_refused_with_the_kind_that_has_it() {
        let error = error_of(&example().replace("decode = \"int\"", "decode = \"int\"\nshape = [3]"));
        let expected = "job file `job.toml`, line 13: column label: `shape` is only for decode = \"tensor\"";
        assert_eq!(error, expected, "the line is that of the column");
    }

    #[test]
    fn an_error_in_a_job_without_a_text_names_its_keys_and_no_line() {
        for (from, to, expected) in WRONG {
            let table: toml::Table = toml::from_str(&example().replacen(from, to, 1)).unwrap();
            assert_eq!(JobFile::from_table(&table, "job").unwrap_err().to_string(), format!("job: {expected}"));
        }
        let table: toml::Table = toml::from_str(&example()).unwrap();
        assert!(JobFile::from_table(&table, "job").is_ok());
    }

    #[test]
    fn what_is_no_toml_is_shown_with_the_parser_s_view_of_it() {
        let error = error_of(&example().replace("seed = 17", "seed = "));
        assert!(error.contains("line 4") && error.contains("seed ="), "{error}");
    }

    #[test]
    fn a_step_can_be_short_and_is_the_same_step() {
        let ops = |ops: &str| {
            let text =
                example().replacen("ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]", ops, 1);
            let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|error| panic!("{error}"));
            let DecodeFile::Image(ImageKeys { ops, .. }) = &file.column[0].decode else { panic!("{file:?}") };
            ops.clone()
        };
        let short = ops(
            "ops = [{ crop_box = \"xml\" }, \"crop_box\", { random_resized_crop = 224 }, { resize = [256, 300] }, { center_crop = 9 }, \"random_flip\", { random_flip = 0.25 }, { random_flip = 1 }]",
        );
        let full = ops(
            "ops = [{ crop_box = { field = \"xml\" } }, { crop_box = {} }, { random_resized_crop = { size = 224 } }, { resize = { size = [256, 300] } }, { center_crop = { size = 9 } }, { random_flip = {} }, { random_flip = { p = 0.25 } }, { random_flip = { p = 1.0 } }]",
        );
        assert_eq!(short, full);
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_what_would_be_right() {
        for (from, to, expected) in [
            ("global_batch = 2048", "global_batch = 0", "`global_batch` is 0; it must be 1 to 16777216"),
            ("global_batch = 2048", "global_batch = 16777217", "`global_batch` is 16777217; it must be 1 to 16777216"),
            ("epochs = 90", "epochs = 0", "`epochs`"),
            ("imagenet-train", "image net", "`name`"),
            ("size = 224", "size = 0", "`size`"),
            ("ops = [{ random_resized_crop = { size = 224 } }, ", "ops = [", "different sizes"),
            ("name = \"label\"", "name = \"image\"", "twice"),
            ("decode = \"int\"", "decode = \"int\"\ndtype = \"u8\"", "dtype"),
            ("decode = \"int\"", "decode = \"json\"", "`path`"),
            ("layout = \"nhwc\"", "normalise = { mean = [0.5,0.5,0.5], std = [1,1,1] }", "float type"),
            (
                "layout = \"nhwc\"",
                "dtype = \"f32\"\nnormalise = { mean = [123.675, 116.28, 103.53], std = [58.395, 57.12, 57.375] }",
                "has the mean 123.675, and values are from 0 to 1 when they are normalised: divide means and stds of 0 to 255 by 255",
            ),
            ("seed = 17", "order = { lanes = 0 }", "`order.lanes`"),
        ] {
            let error = error_of(&example().replace(from, to));
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
