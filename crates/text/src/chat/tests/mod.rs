//! Tests of chats with the templates of `tests/templates`, and a tokenizer whose tokens are bytes and a few special ones.

mod masks;
mod records;
mod spans;
mod templates;

use minijinja::Value;
use serde_json::{Value as Json, json};
use tokenizers::{pipeline::PipelineTokenizer, utils::byte_level::BYTES_CHAR_LOOKUP};

use super::{ChatOptions, ChatTemplate, Chats, TrainOn};

const CHATML: &str = include_str!("../../../tests/templates/chatml.jinja");
const GEMMA: &str = include_str!("../../../tests/templates/gemma.jinja");
const GPT_OSS: &str = include_str!("../../../tests/templates/gpt_oss.jinja");
const LLAMA3: &str = include_str!("../../../tests/templates/llama3.jinja");
const MISTRAL: &str = include_str!("../../../tests/templates/mistral.jinja");
const QWEN3: &str = include_str!("../../../tests/templates/qwen3.jinja");
const TEMPLATES: [(&str, &str); 6] = [
    ("chatml", CHATML),
    ("gemma", GEMMA),
    ("gpt_oss", GPT_OSS),
    ("llama3", LLAMA3),
    ("mistral", MISTRAL),
    ("qwen3", QWEN3),
];
const CONFIG: &str = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null}"#;
const SPECIAL: [&str; 8] =
    ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<|end|>", "<think>"];

/// Returns a template without `{% generation %}`, with all whitespace as it was.
fn stock(template: &str) -> String {
    template.replace(" generation ", " if true ").replace(" endgeneration ", " endif ")
}

fn chats(template: &str, train_on: TrainOn) -> Chats {
    let template =
        ChatTemplate::from_jinja("a.jinja", template).with_tokens_of("tokenizer_config.json", CONFIG).unwrap();
    Chats::new(&template, ChatOptions { train_on, ..ChatOptions::default() }).unwrap()
}

/// Returns the text of a record with `[[` and `]]` around each piece that is learned, or the error.
fn rendered(template: &str, train_on: TrainOn, record: &Json) -> Result<String, String> {
    let rendered = chats(template, train_on).text(&record.to_string()).map_err(|error| error.to_string())?;
    let (mut out, mut at) = (String::new(), 0);
    for span in rendered.learned {
        out += &format!("{}[[{}]]", &rendered.text[at..span.start], &rendered.text[span.clone()]);
        at = span.end;
    }
    Ok(out + &rendered.text[at..])
}

/// Returns a tokenizer of bytes, with the tokens above as the next ids.
fn tokenizer(normalizer: &Json) -> PipelineTokenizer {
    let bytes: serde_json::Map<_, _> =
        BYTES_CHAR_LOOKUP.iter().enumerate().map(|(byte, letter)| (letter.to_string(), json!(byte))).collect();
    let added = SPECIAL.iter().enumerate().map(|(n, token)| {
        json!({
            "id": 256 + n, "content": token, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": bytes, "merges": []},
    });
    tokenizers::from_json(&tokenizers::canonicalize_str(&tokenizer.to_string()).unwrap()).unwrap()
}

fn user(content: &str) -> Json {
    json!({"role": "user", "content": content})
}

fn assistant(content: &str) -> Json {
    json!({"role": "assistant", "content": content})
}

fn tool_call() -> Json {
    json!({"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 1.5}}},
    ]})
}

fn tools() -> Json {
    json!([{"type": "function", "function": {
        "name": "weather", "description": "The weather <now> & 'then'",
        "parameters": {"type": "object", "properties": {"items": {"type": "array"}, "city": {"type": "string"}}},
    }}])
}

#[test]
fn values_of_a_record_keep_their_order() {
    let value: Value = serde_json::from_str(r#"{"b": 1, "a": {"d": 2, "c": 3}}"#).unwrap();
    assert_eq!(value.to_string().replace('\'', "\""), r#"{"b": 1, "a": {"d": 2, "c": 3}}"#);
}

#[test]
fn numbers_of_a_record_are_read_exactly() {
    let mut dice = Dice(1);
    for _ in 0..20_000 {
        let (whole, decimals) = (dice.below(1_000_000), dice.below(1_000_000_000));
        let text = format!("{whole}.{decimals:09}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(f64::try_from(read).unwrap().to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
}

#[test]
fn damaged_templates_and_records_are_errors_at_most() {
    let record = json!({"messages": [user("a"), tool_call(), {"role": "tool", "content": "b"}, assistant("c")], "tools": tools()}).to_string();
    let tokenizer = tokenizer(&json!(null));
    let (mut dice, mut good) = (Dice(2), 0);
    for _ in 0..200 {
        for (_, template) in TEMPLATES {
            let template =
                ChatTemplate::from_jinja("a.jinja", &dice.damage(template)).with_tokens_of("c.json", CONFIG).unwrap();
            let Ok(chats) = Chats::new(&template, ChatOptions::default()) else { continue };
            for record in [&record, &dice.damage(&record)] {
                if let Ok(document) = chats.document(record, &tokenizer) {
                    assert!(document.learned.contains(&true) && document.learned.len() == document.ids.len());
                    good += 1;
                }
            }
        }
    }
    assert!(good > 100, "{good}");
}

/// Draws numbers; the same seed draws the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// Takes pieces out of a text, or puts them elsewhere.
    fn damage(&mut self, text: &str) -> String {
        let mut letters: Vec<_> = text.chars().collect();
        for _ in 0..=self.below(3) {
            let start = self.below(letters.len());
            let end = letters.len().min(start + 1 + self.below(12));
            let taken: Vec<_> = letters.drain(start..end).collect();
            if self.below(2) == 0 && !letters.is_empty() {
                let at = self.below(letters.len());
                letters.splice(at..at, taken);
            }
        }
        letters.into_iter().collect()
    }
}
