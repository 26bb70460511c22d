//! A tokenizer as Hugging Face's `tokenizers` reads it from a `tokenizer.json`.

use std::collections::HashMap;

use serde_json::Value;
use spdl_types::Fingerprint;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};
use xxhash_rust::xxh3::Xxh3;

/// Size of the largest `tokenizer.json` that is read, in bytes: 512 MiB.
pub const MAX_TOKENIZER_BYTES: u64 = 512 << 20;
/// The parts of a `tokenizer.json` that decide the ids of a text without special tokens around it.
const DECIDE_IDS: [&str; 4] = ["normalizer", "pre_tokenizer", "model", "added_tokens"];
/// Ids are below 2^31.
const MAX_IDS: u64 = 1 << 31;

/// The bytes are no tokenizer that can be used. The text follows the name of the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(String);

/// Whether the tokens that a tokenizer puts around a text are added, such as `<s>` or `[CLS]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Only the text's own tokens.
    #[default]
    Leave,
    /// Those that the post-processor of the tokenizer adds.
    Add,
}

/// A tokenizer. It is cheap to clone, and may be used by several threads at once.
#[derive(Clone)]
pub struct Tokenizer {
    pipeline: PipelineTokenizer,
    ids: std::sync::Arc<HashMap<String, u32>>,
    vocab: u32,
    fingerprint: Fingerprint,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab", &self.vocab).field("fingerprint", &self.fingerprint).finish()
    }
}

impl Tokenizer {
    /// Opens a tokenizer from the bytes of a `tokenizer.json`, of any version.
    ///
    /// # Errors
    /// If they are something else, or the tokenizer has a part that is not known.
    pub fn open(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let Ok(mut config) = serde_json::from_slice::<Value>(bytes) else { return Err(no_json(bytes)) };
        if let Some(problem) = other_json(&config) {
            return Err(TokenizerError(problem.to_owned()));
        }
        let unusable = |error: &dyn std::fmt::Display| TokenizerError(format!("cannot be used: {error}"));
        tokenizers::canonicalize_value(&mut config).map_err(|error| unusable(&error))?;
        let pipeline = tokenizers::from_json(&config.to_string()).map_err(|error| unusable(&error))?;
        let ids = ids_of(&config).ok_or_else(|| TokenizerError("has no vocabulary with ids".to_owned()))?;
        let count = ids.values().max().map_or(0, |id| u64::from(*id) + 1);
        let vocab = u32::try_from(count).ok().filter(|_| (1..=MAX_IDS).contains(&count)).ok_or_else(|| {
            TokenizerError(format!(
                "has ids up to {}; they are below 2^31, and there is at least one",
                count.max(1) - 1
            ))
        })?;
        Ok(Self { pipeline, ids: ids.into(), vocab, fingerprint: fingerprint_of(&config) })
    }

    /// Returns the ids of a text. They are those of Python's `tokenizers`, without truncation and padding, whatever the file
    /// says about these.
    ///
    /// # Errors
    /// In words, if the tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let options = EncodeOptions {
            add_special_tokens: special == SpecialTokens::Add,
            encode_special_tokens: false,
            padding: Override::Off,
            truncation: Override::Off,
        };
        self.pipeline.encode_into(text, &options, &mut ids).map_err(|error| error.to_string())?;
        Ok(ids.into_iter().map(PipelineToken::id).collect())
    }

    /// Returns the text of ids, with special tokens.
    ///
    /// # Errors
    /// In words, if the tokenizer cannot decode.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.pipeline.decode(ids, false).map_err(|error| error.to_string())
    }

    /// Returns the number of ids, those of added tokens included: the greatest id and 1.
    #[must_use]
    pub const fn vocab(&self) -> u32 {
        self.vocab
    }

    /// Returns the id of a token as it is in the vocabulary, such as `<|endoftext|>`.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Returns XXH3-128 of all that decides the ids of a text. Two files of one tokenizer have the same, whatever their version
    /// and the order of their keys.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Returns the ids of all tokens; `None` if the vocabulary has another form.
fn ids_of(config: &Value) -> Option<HashMap<String, u32>> {
    let id = |id: &Value| u32::try_from(id.as_u64()?).ok();
    let mut ids: HashMap<String, u32> = match config.get("model")?.get("vocab")? {
        Value::Object(vocab) => vocab.iter().map(|(token, number)| Some((token.clone(), id(number)?))).collect(),
        // Unigram: pairs of a token and its score, whose place is its id.
        Value::Array(pairs) => {
            (0..).zip(pairs).map(|(number, pair)| Some((pair.get(0)?.as_str()?.to_owned(), number))).collect()
        }
        _ => None,
    }?;
    for added in config.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
        ids.insert(added.get("content")?.as_str()?.to_owned(), id(added.get("id")?)?);
    }
    Some(ids)
}

fn fingerprint_of(config: &Value) -> Fingerprint {
    let mut hasher = Xxh3::new();
    for part in DECIDE_IDS {
        hash_text(part, &mut hasher);
        hash_value(config.get(part).unwrap_or(&Value::Null), &mut hasher);
    }
    Fingerprint(hasher.digest128())
}

/// Hashes a value with the keys of objects in their order as text.
fn hash_value(value: &Value, hasher: &mut Xxh3) {
    match value {
        Value::Null => hasher.update(b"0"),
        Value::Bool(yes) => hasher.update(if *yes { b"t" } else { b"f" }),
        Value::Number(number) => {
            hasher.update(b"n");
            hash_text(&number.to_string(), hasher);
        }
        Value::String(text) => {
            hasher.update(b"s");
            hash_text(text, hasher);
        }
        Value::Array(values) => {
            hasher.update(b"a");
            hasher.update(&(values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| hash_value(value, hasher));
        }
        Value::Object(values) => {
            hasher.update(b"o");
            hasher.update(&(values.len() as u64).to_le_bytes());
            let mut sorted: Vec<_> = values.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                hash_text(key, hasher);
                hash_value(value, hasher);
            }
        }
    }
}

fn hash_text(text: &str, hasher: &mut Xxh3) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// Returns what is wrong with bytes that are no JSON.
fn no_json(bytes: &[u8]) -> TokenizerError {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let is_rank = |line: &[u8]| {
        let mut words = line.splitn(2, |byte| *byte == b' ');
        let (token, rank) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().trim_ascii());
        !token.is_empty() && token.iter().all(is_base64) && !rank.is_empty() && rank.iter().all(u8::is_ascii_digit)
    };
    let problem = if bytes.starts_with(b"\x0a") && bytes.iter().take(1 << 10).any(|byte| *byte < 9) {
        "is a model of SentencePiece, and no tokenizer.json: `AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OUT)` of \
         transformers writes one"
    } else if is_rank(first) {
        "has the ranks of tiktoken, and no tokenizer.json: `transformers.convert_slow_tokenizer.TikTokenConverter` makes one, and \
         most models have one beside it"
    } else {
        "is no tokenizer.json: it is not JSON"
    };
    TokenizerError(problem.to_owned())
}

/// Returns what is wrong with JSON that is no `tokenizer.json`.
fn other_json(config: &Value) -> Option<&'static str> {
    let has = |key| config.get(key).is_some();
    if has("model") {
        return None;
    }
    Some(if has("tokenizer_class") {
        "is a tokenizer_config.json: give the tokenizer.json beside it"
    } else if has("bpe_ranks") || has("pat_str") || has("vocab") && has("config") {
        "has the ranks of tiktoken (or tekken), and no tokenizer.json: give the tokenizer.json of the model"
    } else if has("model_type") || has("architectures") {
        "is the config.json of a model: give the tokenizer.json beside it"
    } else if config.as_object().is_some_and(|tokens| !tokens.is_empty() && tokens.values().all(Value::is_u64)) {
        "is a vocabulary alone (vocab.json), without the rules: give the tokenizer.json of the model"
    } else {
        "is no tokenizer.json: it has no `model`"
    })
}
