use std::collections::BTreeSet;

use super::*;
use crate::{BadSamples, Job, JobFile, MixFile};
use spdl_order::{DatasetFacts, MixParams};
use spdl_types::{DType, Fingerprint, SampleShape};

const TOKENS: &str = "[[column]]\nname = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"\nvocab = 1000\n";
const POOLS: Fingerprint = Fingerprint(5);
const FACTS: DatasetFacts = DatasetFacts::new(Fingerprint(7), 1000, 128);

/// Returns a column that follows the tokens.
fn follower(name: &str, decode: &str, keys: &str) -> String {
    format!("[[column]]\nname = \"{name}\"\ndecode = \"{decode}\"\nfollows = \"tokens\"\n{keys}\n")
}

fn job_of(keys: &str, columns: &str) -> Result<Job, String> {
    let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{keys}\n{columns}");
    let evaluated = |mut file: JobFile| {
        file.sequence.iter_mut().for_each(|sequence| sequence.pools = Some(POOLS));
        file
    };
    JobFile::parse(&text, "job.toml").and_then(|file| evaluated(file).freeze(&FACTS)).map_err(|error| error.to_string())
}

/// Returns a job with these keys in its `sequence`.
fn job(keys: &str) -> Result<Job, String> {
    job_of(&format!("sequence = {{ {keys} }}"), TOKENS)
}

fn sequence(keys: &str) -> Sequence {
    *job(keys).unwrap().sequence.unwrap()
}

fn all_followers() -> String {
    let kinds = ["labels", "positions", "document_lengths", "document_ids", "loss_mask", "global_lengths"];
    kinds.map(|kind| follower(kind, kind, "")).concat()
}

#[test]
fn keys_that_are_left_out_have_their_defaults() {
    let expected = Sequence {
        version: 1,
        seq_len: 8192,
        packing: PackMethod::BestFit { align: 16, max_documents: None, long: LongDocument::Split },
        pool_tokens: 4 << 20,
        pools: POOLS,
        documents: 1000,
        tokens: 0,
        cross_documents: false,
        bos: None,
        eos: None,
        pad: 0,
        eos_in_loss: true,
    };
    assert_eq!(sequence("seq_len = 8192"), expected);
    assert_eq!(sequence("seq_len = 8192, method = \"best_fit\""), expected);
    let chunk = Sequence { packing: PackMethod::Chunk, cross_documents: true, ..expected };
    assert_eq!(sequence("seq_len = 8192, method = \"chunk\""), chunk);
}

#[test]
fn every_key_is_taken_and_no_two_jobs_are_the_same() {
    let of_best_fit = |keys: &str| sequence(&format!("seq_len = 100{keys}"));
    let PackMethod::BestFit { align, max_documents, long } =
        of_best_fit(", long = \"drop\", align = 64, max_documents = 5").packing
    else {
        panic!("best fit is the default")
    };
    assert_eq!((long, align, max_documents), (LongDocument::Drop, 64, Some(5)));
    let chunk = of_best_fit(", method = \"chunk\", cross_documents = false");
    assert_eq!((chunk.packing, chunk.cross_documents), (PackMethod::Chunk, false));
    let ids = of_best_fit(", bos = 1, eos = 2, pad = 3, eos_in_loss = false, pool_tokens = 200");
    assert_eq!((ids.bos, ids.eos, ids.pad, ids.eos_in_loss, ids.pool_tokens), (Some(1), Some(2), 3, false, 200));
    let added = ["", ", bos = 1", ", eos = 0", ", bos = 0, eos = 0"].map(|keys| of_best_fit(keys).added_tokens());
    assert_eq!(added, [0, 1, 1, 2]);

    let jobs = [
        "",
        ", long = \"truncate\"",
        ", long = \"drop\"",
        ", align = 1",
        ", max_documents = 1",
        ", pool_tokens = 100",
        ", method = \"chunk\"",
        ", method = \"chunk\", cross_documents = false",
        ", bos = 0",
        ", eos = 0",
        ", pad = 1",
        ", eos = 0, eos_in_loss = false",
    ]
    .map(|keys| job(&format!("seq_len = 100{keys}")).unwrap());
    let plain = job_of("bad_samples = \"mask\"", TOKENS).unwrap();
    let longer = job("seq_len = 101").unwrap();
    let all = jobs.into_iter().chain([plain, longer]);
    let fingerprints: BTreeSet<_> = all
        .map(|job| {
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job, "{text}");
            job.fingerprint().to_string()
        })
        .collect();
    assert_eq!(fingerprints.len(), 14);
}

#[test]
fn a_job_has_its_sequences_in_the_object_of_the_order() {
    let form = |job: &Job| serde_json::to_value(job).unwrap();
    let order = &form(&job("seq_len = 64, eos = 9").unwrap())["order"];
    let expected = serde_json::json!({
        "version": 1, "seq_len": 64, "packing": { "best_fit": { "align": 16, "long": "split" } },
        "pool_tokens": 4_194_304, "pools": "00000000000000000000000000000005", "documents": 1000, "tokens": 0, "cross_documents": false,
        "eos": 9, "pad": 0, "eos_in_loss": true,
    });
    assert_eq!(order["sequence"], expected);
    let plain = form(&job_of("", TOKENS).unwrap());
    assert!(plain["order"].get("sequence").is_none(), "{plain}");
    let column = |job: Job| form(&job)["columns"][0]["kind"].clone();
    assert_eq!(column(job("seq_len = 64").unwrap()), serde_json::json!({ "tokens": { "vocab": 1000, "seq_len": 64 } }));
    let plain = column(job_of("", TOKENS).unwrap());
    assert_eq!(plain, serde_json::json!({ "tokens": { "vocab": 1000, "max_rows": 1 << 20 } }));
}

#[test]
fn short_sequences_are_not_aligned_beyond_their_length_and_long_ones_have_large_pools() {
    let align = |seq_len: u32| match sequence(&format!("seq_len = {seq_len}")).packing {
        PackMethod::BestFit { align, .. } => align,
        PackMethod::Chunk => panic!("best fit is the default"),
    };
    assert_eq!([1, 2, 7, 15, 16, 17, 1 << 24].map(align), [1, 2, 4, 8, 16, 16, 16]);
    let pool = |seq_len: u32| sequence(&format!("seq_len = {seq_len}")).pool_tokens;
    assert_eq!([1, 8192, 8193, 1 << 24].map(pool), [4 << 20, 4 << 20, 512 * 8193, 512 << 24]);
}

#[test]
fn a_key_that_makes_no_sense_is_named() {
    for (keys, expected) in [
        ("", "sequence: `seq_len` is missing"),
        ("seq_len = 0", "job `a`: `sequence.seq_len` is 0, not in 1..=16777216"),
        ("seq_len = 16777217", "`sequence.seq_len` is 16777217, not in 1..=16777216"),
        ("seq_len = \"8k\"", "sequence: seq_len expects a whole number, not the text \"8k\""),
        ("seq_len = 64, method = \"bfd\"", "sequence: method cannot be `bfd`; it can be best_fit, chunk"),
        ("seq_len = 64, long = \"cut\"", "sequence: long cannot be `cut`; it can be split, truncate, drop"),
        ("seq_len = 64, algin = 1", "sequence: there is no key `algin`; did you mean `align`?"),
        ("seq_len = 64, align = 0", "`sequence.align` is 0; it must be a power of two, 1 to 256"),
        ("seq_len = 64, align = 24", "`sequence.align` is 24; it must be a power of two, 1 to 256"),
        ("seq_len = 1024, align = 512", "`sequence.align` is 512; it must be a power of two, 1 to 256"),
        ("seq_len = 100, align = 128", "`sequence.align` is 128, more than `seq_len`, which is 100"),
        ("seq_len = 64, max_documents = 0", "`sequence.max_documents` is 0; it must be at least 1"),
        (
            "seq_len = 64, pool_tokens = 63",
            "`sequence.pool_tokens` is 63; it must be `seq_len`, which is 64, to 1099511627776",
        ),
        ("seq_len = 64, pool_tokens = 1099511627777", "`sequence.pool_tokens` is 1099511627777; it must be"),
        ("seq_len = 64, cross_documents = true", "`sequence.cross_documents` is only for method = \"chunk\""),
        ("seq_len = 64, method = \"chunk\", long = \"split\"", "`sequence.long` is only for method = \"best_fit\""),
        ("seq_len = 64, method = \"chunk\", align = 1", "`sequence.align` is only for method = \"best_fit\""),
        (
            "seq_len = 64, method = \"chunk\", max_documents = 1",
            "`sequence.max_documents` is only for method = \"best_fit\"",
        ),
        ("seq_len = 64, bos = 2147483648", "`sequence.bos` is 2147483648; ids are below 2147483648"),
        ("seq_len = 64, bos = 1000", "`sequence.bos` is 1000, and `vocab` of column `tokens` is 1000"),
        ("seq_len = 64, eos = 1000", "`sequence.eos` is 1000, and `vocab` of column `tokens` is 1000"),
        ("seq_len = 64, pad = 5000", "`sequence.pad` is 5000, and `vocab` of column `tokens` is 1000"),
        (
            "seq_len = 64, eos_in_loss = false",
            "`sequence.eos_in_loss` needs `eos`: it is about the id that the job puts",
        ),
        ("seq_len = 64, eos_in_loss = true", "`sequence.eos_in_loss` needs `eos`"),
    ] {
        let error = job(keys).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn columns_have_the_shape_of_a_sequence() {
    let job = job_of("sequence = { seq_len = 64 }", &format!("{TOKENS}{}", all_followers())).unwrap();
    let shapes: Vec<_> = job.columns.iter().map(|column| (column.shape(), column.dtype, column.from.len())).collect();
    let fixed = || SampleShape::Fixed(vec![64]);
    let expected = [
        (fixed(), DType::I32, 1),
        (fixed(), DType::I64, 0),
        (fixed(), DType::I32, 0),
        (SampleShape::Rows { row: vec![], max_rows: 64 }, DType::I32, 0),
        (fixed(), DType::I32, 0),
        (fixed(), DType::F32, 0),
        (SampleShape::Rows { row: vec![], max_rows: 1 << 20 }, DType::I32, 0),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(job.bad_samples, BadSamples::Mask);
    assert_eq!(serde_json::from_slice::<Job>(&serde_json::to_vec(&job).unwrap()).unwrap(), job);
    job.check().unwrap();
    let dtypes = [("labels", "i32"), ("positions", "i64"), ("loss_mask", "u8"), ("loss_mask", "bool")];
    for (kind, dtype) in dtypes {
        let columns = format!("{TOKENS}{}", follower("x", kind, &format!("dtype = \"{dtype}\"")));
        let job = job_of("sequence = { seq_len = 64 }", &columns).unwrap();
        assert_eq!(job.columns[1].dtype.name(), dtype);
    }
    let shifted = |keys: &str| {
        let columns = format!("{TOKENS}{}", follower("x", "labels", keys));
        let job = job_of("sequence = { seq_len = 64 }", &columns).unwrap();
        let ColumnKind::Labels(labels) = &job.columns[1].kind else { panic!("{job:?}") };
        (labels.shifted, job.fingerprint())
    };
    assert!(shifted("").0 && shifted("shifted = true") == shifted("") && !shifted("shifted = false").0);
    assert_ne!(shifted("").1, shifted("shifted = false").1);
}

#[test]
fn lengths_of_a_global_batch_survive_being_numbers() {
    let sequence = sequence("seq_len = 64");
    let sequences: [&[u32]; 5] = [&[16, 48], &[], &[64], &[1, 2, 3], &[63]];
    let numbers: Vec<i32> =
        sequences.iter().flat_map(|lengths| sequence.global_lengths_of(lengths.iter().copied())).collect();
    assert_eq!(numbers, [16, 48, -64, 64, 1, 2, 3, -58, 63, -1]);
    let lengths = sequences.map(|lengths| lengths.iter().map(|length| *length as i32).collect::<Vec<_>>());
    assert_eq!(sequence.documents_of_global_lengths(numbers), lengths);
    assert_eq!(
        sequence.documents_of_global_lengths([i32::MIN, 5, -58]),
        [Vec::<i32>::new()],
        "numbers of a hostile peer"
    );
}

#[test]
fn one_mask_says_what_a_job_learns() {
    let packed = "sequence = { seq_len = 64 }";
    let of = |labels: &str, mask: &str| {
        let columns = [TOKENS, &follower("labels", "labels", labels), &follower("mask", "loss_mask", mask)].concat();
        job_of(packed, &columns)
    };
    let loss = "loss_from = \"loss\"";
    let job = of(loss, loss).unwrap();
    assert_eq!(LabelRule::counted(&job.columns), Some(LabelRule { shifted: true, loss_from: Some("loss") }));
    assert_eq!(serde_json::from_slice::<Job>(&serde_json::to_vec(&job).unwrap()).unwrap(), job);
    assert_ne!(job.fingerprint(), of("", "").unwrap().fingerprint());
    let unshifted = of("shifted = false", "").unwrap();
    assert_eq!(LabelRule::counted(&unshifted.columns), Some(LabelRule { shifted: false, loss_from: None }));
    let columns = [TOKENS, &follower("mask", "loss_mask", loss), &follower("ids", "document_ids", "")].concat();
    let masks = job_of(packed, &columns).unwrap();
    assert_eq!(LabelRule::counted(&masks.columns), Some(LabelRule { shifted: true, loss_from: Some("loss") }));
    assert_eq!(LabelRule::counted(&masks.columns[2..]), None);
    for (labels, mask, expected) in [
        (loss, "", "column `labels`: `loss_from` is `loss`, and that of column `mask` is missing; one mask"),
        ("", loss, "column `labels`: `loss_from` is missing, and that of column `mask` is `loss`; one mask"),
        (loss, "loss_from = \"other\"", "column `labels`: `loss_from` is `loss`, and that of column `mask` is `other`"),
        ("loss_from = \"\"", "loss_from = \"\"", "column `labels`: `loss_from` is empty"),
    ] {
        let error = of(labels, mask).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let columns = [TOKENS, &follower("positions", "positions", loss)].concat();
    assert!(job_of(packed, &columns).unwrap_err().contains("`loss_from` is only for decode = \"labels\""));
}

#[test]
fn what_a_job_with_sequences_cannot_have_is_named_with_what_to_do() {
    let packed = "sequence = { seq_len = 64 }";
    let column = |name: &str, keys: &str| format!("[[column]]\nname = \"{name}\"\nfrom = \"x\"\n{keys}\n");
    let image = column("image", "decode = \"image\"\nops = [{ center_crop = 8 }]");
    let follows_another =
        follower("places", "positions", "") + &follower("labels", "labels", "").replace("\"tokens\"", "\"places\"");
    for (keys, columns, expected) in [
        (
            packed,
            column("n", "decode = \"int\""),
            "column `n`: `decode` is `int`, and a sample of a job with `sequence` is several documents; such a job has `tokens` \
             and columns that follow it",
        ),
        (
            packed,
            column("n", "decode = \"tensor\""),
            "column `n`: `decode` is `tensor`, and a sample of a job with `sequence` is several documents; such a job has `tokens`",
        ),
        (
            packed,
            format!("{TOKENS}{image}"),
            "column `image`: `decode` is `image`, and a sample of a job with `sequence`",
        ),
        (
            packed,
            format!("{TOKENS}{}", column("more", "decode = \"tokens\"")),
            "column `more`: `decode` is `tokens`, as that of column `tokens` is; a job with `sequence` has one such column",
        ),
        (
            "mix = { mixup = 0.2 }\nsequence = { seq_len = 64 }",
            TOKENS.to_owned(),
            "`mix` is for pictures, and a job with `sequence` has none; leave one of both out",
        ),
        (
            "bad_samples = \"substitute\"\nsequence = { seq_len = 64 }",
            TOKENS.to_owned(),
            "`bad_samples` cannot be `substitute` in a job with `sequence`, whose places are fixed: write \"mask\"",
        ),
        (
            packed,
            format!("{TOKENS}max_rows = 9\n"),
            "column `tokens`: `max_rows` is for jobs without `sequence`; `long` there is for documents",
        ),
        (
            packed,
            format!("{TOKENS}transform = \"a:b\"\n"),
            "column `tokens`: `transform` is not for a job with `sequence`, whose samples are several documents",
        ),
        (
            packed,
            format!(
                "{TOKENS}[[function]]\ncall = \"a:c\"\nfields = [\"t\"]\nreturns = [{{ name = \"y\", max_bytes = 5 }}]\n"
            ),
            "column `y`: `from` is not for a job with `sequence`, whose samples are several documents: leave the function out",
        ),
        (
            "",
            format!("{TOKENS}{}", follower("labels", "labels", "")),
            "column `labels`: `follows` is `tokens`, whose documents are not packed; add `sequence = { seq_len = 8192 }` to the job",
        ),
        (
            packed,
            format!("{TOKENS}{follows_another}"),
            "column `labels`: `follows` is `places`, a column of decode = \"positions\"; it has to be of decode = \"tokens\"",
        ),
        (packed, all_followers(), "column `labels`: `follows` is `tokens`, and the job has no such column"),
        (
            packed,
            format!("{TOKENS}{}", follower("labels", "labels", "from = \"x\"")),
            "column labels: `from` is not for decode = \"labels\", which follows a column of tokens; leave it out",
        ),
        (packed, format!("{TOKENS}[[column]]\nname = \"n\"\ndecode = \"int\"\n"), "column n: `from` is missing"),
        (
            packed,
            format!("{TOKENS}{}", follower("x", "positions", "shifted = true")),
            "column x: `shifted` is only for decode = \"labels\"",
        ),
        (
            packed,
            format!("{TOKENS}{}", follower("x", "document_ids", "dtype = \"i64\"")),
            "column `x`: `dtype` cannot be i64 for decode = \"document_ids\"",
        ),
    ] {
        let error = job_of(keys, &columns).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    for kind in ["labels", "positions", "document_lengths", "document_ids", "loss_mask", "global_lengths"] {
        let columns = format!("{TOKENS}[[column]]\nname = \"x\"\ndecode = \"{kind}\"\n");
        let error = job_of(packed, &columns).unwrap_err();
        let expected = "column `x`: `follows` is missing; write the name of the tokens column that it is of";
        assert!(error.contains(expected), "{error}");
    }
}

/// A change that a peer could make to a job.
type JobEdit = fn(&mut Job);

#[test]
fn a_job_of_a_peer_is_checked_like_one_of_a_file() {
    let columns = format!("{TOKENS}{}", all_followers());
    let whole = job_of("sequence = { seq_len = 64, eos = 7 }", &columns).unwrap();
    let edits: [(JobEdit, &str); 8] = [
        (|job| job.sequence = None, "`sequence` is missing, and a column has sequences"),
        (
            |job| job.sequence.as_mut().unwrap().seq_len = 65,
            "`sequence.seq_len` is 65, and column `tokens` has another length",
        ),
        (|job| job.sequence.as_mut().unwrap().pool_tokens = 0, "`sequence.pool_tokens` is 0"),
        (|job| job.sequence.as_mut().unwrap().eos = None, ""),
        (|job| job.sequence.as_mut().unwrap().pad = u32::MAX, "`sequence.pad` is 4294967295; ids are below"),
        (|job| job.bad_samples = BadSamples::Substitute, "`bad_samples` cannot be `substitute`"),
        (|job| job.columns[1].from.push("x".to_owned()), "column `labels`: `from` is not for decode = \"labels\""),
        (
            |job| {
                let columns = vec!["tokens".to_owned()];
                let params = MixParams { mixup: Some(1.0), cutmix: None, p: 1.0, cutmix_p: 0.5, distance: 1 };
                job.mix = Some(crate::Mix { columns, params });
            },
            "`mix` is for pictures",
        ),
    ];
    for (edit, expected) in edits {
        let mut job = whole.clone();
        edit(&mut job);
        if expected.is_empty() {
            job.check().unwrap();
        } else {
            let error = job.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
    let ColumnKind::Labels(labels) = &whole.columns[1].kind else { panic!("{whole:?}") };
    let longer = ColumnKind::Labels(crate::LabelsColumn { seq_len: 65, ..labels.clone() });
    let mut job = whole.clone();
    job.columns[1].kind = longer;
    let error = job.check().unwrap_err().to_string();
    assert!(error.contains("column `labels`: `follows` is `tokens`, which the column does not fit"), "{error}");
}

#[test]
fn sequences_that_only_a_function_takes_are_refused_where_there_is_no_table() {
    let function =
        "[[function]]\ncall = \"a:c\"\ncolumns = [\"tokens\"]\nreturns = [{ name = \"tokens\", shape = [4] }]\n";
    let mut job = job_of("", &format!("{TOKENS}{function}")).unwrap();
    let ColumnKind::Returned(returned) = &mut job.columns[0].kind else { panic!("{job:?}") };
    let ColumnKind::Tokens(tokens) = &mut returned.call.columns[0].kind else { panic!("a function takes tokens") };
    (tokens.max_rows, tokens.seq_len) = (None, Some(4));
    let error = job.check().unwrap_err().to_string();
    assert!(error.contains("`sequence` is missing, and a column has sequences"), "{error}");
}

/// Keys of jobs without sequences, with the fingerprints of the job and of its text before there were any.
const BEFORE: [(&str, &str, &str); 4] = [
    ("", "d54ce29015bcf3fdfe9fe8c060b10a83", "70e254aa570925999ae056e60f26195e"),
    (VIEW, "ab96e2fcd64c91b9d27e46ff5d6400c8", "f64d4754e8b5298b840d57e149d2f05c"),
    ("mix = { mixup = 0.2 }", "ab05d888fa8bb660c655488031eb42e7", "529ef8668accf7140b9aaf235ea49133"),
    (VIEW_AND_MIX, "c8cdf2b4bbbd0828db0d703ad5c46491", "adc17d72225a328b895ad031ef3ba206"),
];
const VIEW: &str = "view = { first = 9, samples = \"00000000000000000000000000000005\" }";
const VIEW_AND_MIX: &str =
    "view = { first = 9, samples = \"00000000000000000000000000000005\" }\nmix = { cutmix = 1.0 }";

#[test]
fn jobs_without_sequences_keep_their_fingerprints_and_their_text() {
    let columns = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ random_resized_crop = 8 }]\n\
                   [[column]]\nname = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 10\n";
    for (keys, fingerprint, text) in BEFORE {
        let job = job_of(keys, columns).unwrap();
        let of_text = Fingerprint::of(&serde_json::to_vec(&job).unwrap());
        assert_eq!([job.fingerprint().to_string(), of_text.to_string()], [fingerprint, text], "{keys}");
    }
}

#[test]
fn a_view_of_documents_is_in_the_fingerprint_of_their_sequences() {
    let of = |more: &str| job_of(&format!("sequence = {{ seq_len = 64 }}\n{more}"), TOKENS).unwrap();
    let (all, some) = (of(""), of(VIEW));
    assert_ne!(all.fingerprint(), some.fingerprint());
    assert_ne!(all.sample_content().source, some.sample_content().source, "others share a sequence");
}

#[test]
fn a_job_file_survives_its_own_text() {
    let columns = format!("{TOKENS}{}", all_followers());
    let text =
        format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\nsequence = {{ seq_len = 64, bos = 1 }}\n{columns}");
    let file = JobFile::parse(&text, "job.toml").unwrap();
    let again = JobFile::parse(&toml::to_string(&file).unwrap(), "job.toml").unwrap();
    let frozen = |mut file: JobFile| {
        let error = file.freeze(&FACTS).unwrap_err().to_string();
        assert!(error.contains("`sequence` is not evaluated: `spdl-ctl job submit` does that"), "{error}");
        file.sequence.iter_mut().for_each(|sequence| sequence.pools = Some(POOLS));
        file.freeze(&FACTS).unwrap()
    };
    assert_eq!(frozen(again.clone()), frozen(file.clone()));
    assert_eq!(again.sequence, file.sequence);
    assert_eq!(again.mix, None::<MixFile>);
}

#[test]
fn sequences_that_differ_in_their_packing_share_no_samples() {
    let content = |keys: &str| job(&format!("seq_len = 64{keys}")).unwrap().sample_content();
    let plain = content("");
    assert_eq!(content("").source, plain.source);
    for other in [", align = 1", ", eos = 3", ", pool_tokens = 64", ", method = \"chunk\""].map(content) {
        assert_ne!(other.source, plain.source);
        assert_eq!(other.parts, plain.parts);
    }
    let documents = job_of("", TOKENS).unwrap().sample_content();
    assert!(documents.source != plain.source && documents.parts != plain.parts);
}

#[test]
fn documents_of_sequences_are_not_redacted() {
    let job = job("seq_len = 64").unwrap();
    let samples = spdl_order::RedactedSamples::new(vec![spdl_types::SampleId(1)]);
    for error in [job.check_redactable().unwrap_err(), job.redacting(7, &samples).unwrap_err()] {
        let error = error.to_string();
        let problem =
            "a job with `sequence`, whose samples are several documents each: make a `view` without these documents";
        assert!(error.contains(problem), "{error}");
    }
}
