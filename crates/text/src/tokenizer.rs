//! A tokenizer as Hugging Face's `tokenizers` reads it from a `tokenizer.json`.

use std::collections::HashMap;

use serde_json::Value;
use spdl_types::Fingerprint;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};
use xxhash_rust::xxh3::Xxh3;

use crate::chat::TokenPieces;

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

/// The ids of a text. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct TokenIds(Vec<PipelineToken>);

impl TokenIds {
    pub(crate) const fn as_slice(&self) -> &[u32] {
        PipelineToken::cast_slice(self.0.as_slice())
    }

    pub(crate) fn push(&mut self, id: u32) {
        self.0.push(PipelineToken::from(id));
    }
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
        let ids = ids_of(&config).ok_or_else(|| TokenizerError("has no vocabulary with ids".to_owned()))?;
        let count = ids.values().max().map_or(0, |id| u64::from(*id) + 1);
        let vocab = u32::try_from(count).ok().filter(|_| (1..=MAX_IDS).contains(&count)).ok_or_else(|| {
            let last = count.max(1) - 1;
            TokenizerError(format!("has ids up to {last}; they are below 2^31, and there is at least one"))
        })?;
        let fingerprint = fingerprint_of(&config);
        add_unused_bytes(&mut config, count);
        let pipeline = tokenizers::from_json(&config.to_string()).map_err(|error| unusable(&error))?;
        Ok(Self { pipeline, ids: ids.into(), vocab, fingerprint })
    }

    /// Returns the ids of a text. They are those of Python's `tokenizers`, without truncation and padding, whatever the file
    /// says about these.
    ///
    /// # Errors
    /// In words, if the tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, String> {
        let mut ids = TokenIds(Vec::with_capacity(text.len() / 3));
        self.encode_into(text, special, &mut ids)?;
        Ok(ids.0.into_iter().map(PipelineToken::id).collect())
    }

    /// Puts the ids of a text in the place of those that are there, as [`encode`](Self::encode) returns them.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    pub(crate) fn encode_into(&self, text: &str, special: SpecialTokens, ids: &mut TokenIds) -> Result<(), String> {
        let options = EncodeOptions {
            add_special_tokens: special == SpecialTokens::Add,
            encode_special_tokens: false,
            padding: Override::Off,
            truncation: Override::Off,
        };
        ids.0.clear();
        self.pipeline.encode_into(text, &options, &mut ids.0).map_err(|error| error.to_string())
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

impl TokenPieces for Tokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        self.encode(text, SpecialTokens::Leave)
    }

    fn push_bytes(&self, id: u32, bytes: &mut Vec<u8>) {
        self.pipeline.push_bytes(id, bytes);
    }

    fn is_added(&self, id: u32) -> bool {
        self.pipeline.is_added(id)
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

/// Adds to the vocabulary of a BPE the tokens of bytes that it lacks, such as the `<0x09>` of Gemma, where it has the character itself: the
/// library refuses it otherwise. No text has their ids, from `next` on, because a character that is there needs no byte.
fn add_unused_bytes(config: &mut Value, mut next: u64) {
    let model = &mut config["model"];
    if model["type"] != "BPE" || model["byte_fallback"] != true {
        return;
    }
    let Some(vocab) = model["vocab"].as_object_mut() else { return };
    for byte in 0..0x80_u8 {
        let token = format!("<0x{byte:02X}>");
        if !vocab.contains_key(&token) && vocab.contains_key(&char::from(byte).to_string()) {
            vocab.insert(token, next.into());
            next += 1;
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &[u8] = include_bytes!("../tests/data/tokenizer.json");

    fn tiny() -> Tokenizer {
        Tokenizer::open(TINY).unwrap()
    }

    #[test]
    fn ids_are_those_of_the_library_in_python() {
        let ids = |text| tiny().encode(text, SpecialTokens::Leave).unwrap();
        assert_eq!(ids("The manifest is written last.\n"), [583, 853, 297, 638, 934, 737, 15, 200]);
        let odd = "Ü 漢<|endoftext|>  don't";
        assert_eq!(ids(odd), [129, 252, 222, 164, 122, 97, 0, 222, 294, 281, 8, 85]);
        assert_eq!(tiny().decode(&ids(odd)).unwrap(), odd);
        assert_eq!(ids(""), [] as [u32; 0]);
        assert_eq!((tiny().vocab(), tiny().id("<|user|>"), tiny().id("<|x|>")), (1000, Some(1), None));
    }

    #[test]
    fn truncation_and_padding_of_the_file_are_left_out() {
        let mut config: Value = serde_json::from_slice(TINY).unwrap();
        config["truncation"] =
            serde_json::json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 });
        let truncated = Tokenizer::open(config.to_string().as_bytes()).unwrap();
        let ids = |tokenizer: &Tokenizer| tokenizer.encode("The manifest is written", SpecialTokens::Leave).unwrap();
        assert_eq!(ids(&truncated), ids(&tiny()));
        assert_eq!(truncated.fingerprint(), tiny().fingerprint());
    }

    #[test]
    fn the_fingerprint_is_that_of_what_decides_ids() {
        let mut config: Value = serde_json::from_slice(TINY).unwrap();
        let of = |config: &Value| Tokenizer::open(config.to_string().as_bytes()).unwrap().fingerprint();
        config["decoder"] = Value::Null;
        assert_eq!(of(&config), tiny().fingerprint());
        tokenizers::canonicalize_value(&mut config).unwrap();
        assert_eq!(of(&config), tiny().fingerprint(), "a later version of the file");
        config["added_tokens"][1]["content"] = "<|human|>".into();
        assert_ne!(of(&config), tiny().fingerprint());
    }

    #[test]
    fn a_byte_that_is_never_used_may_lack() {
        let byte = |byte: u8| if byte == 9 { "\t".to_owned() } else { format!("<0x{byte:02X}>") };
        let mut vocab: serde_json::Map<String, Value> =
            (0..=255).map(|number| (byte(number), u32::from(number).into())).collect();
        vocab.insert("a".to_owned(), 256.into());
        let model = serde_json::json!({ "type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": [] });
        let config = serde_json::json!({ "version": "1.0", "model": model, "added_tokens": [] });
        let tokenizer = Tokenizer::open(config.to_string().as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("a\tä\n", SpecialTokens::Leave).unwrap(), [256, 9, 0xc3, 0xa4, 10]);
        assert_eq!((tokenizer.vocab(), tokenizer.id("<0x09>")), (257, None));
    }

    #[test]
    fn other_files_are_told_apart() {
        for (bytes, problem) in [
            (&b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"[..], "is a model of SentencePiece"),
            (b"IQ== 0\nIg== 1\n", "has the ranks of tiktoken"),
            (b"{\"bpe_ranks\": \"! 0 IQ==\", \"pat_str\": \"x\"}", "has the ranks of tiktoken (or tekken)"),
            (b"{\"tokenizer_class\": \"X\"}", "is a tokenizer_config.json"),
            (b"{\"model_type\": \"qwen3\"}", "is the config.json of a model"),
            (b"{\"a\": 0, \"b\": 1}", "is a vocabulary alone"),
            (b"[]", "is no tokenizer.json: it has no `model`"),
            (b"x", "is no tokenizer.json: it is not JSON"),
            (b"{\"model\": {\"type\": \"BPE\"}}", "has no vocabulary with ids"),
            (b"{\"model\": {\"type\": \"X\", \"vocab\": {\"a\": 0}}}", "cannot be used"),
            (b"", "is no tokenizer.json: it is not JSON"),
        ] {
            let error = Tokenizer::open(bytes).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
