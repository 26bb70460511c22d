//! Turns chats into tokens, for comparisons with other libraries.
//!
//! usage: render TEMPLATE TOKENIZER [CONFIG [TRAIN_ON]] < RECORDS
//!
//! TEMPLATE is a file with Jinja or a `tokenizer_config.json`, TOKENIZER a `tokenizer.json`, CONFIG a `tokenizer_config.json` with special tokens
//! or `-`, TRAIN_ON one of `assistant`, `last` and `all`. Of each record, a line of JSON, it prints `text`, `ids` and `learned`, or `error`.

use std::{
    env,
    error::Error,
    fs,
    io::{self, BufRead, Write},
};

use spdl_text::chat::{ChatOptions, ChatTemplate, Chats, TrainOn, show};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [path, tokenizer, ..] = &arguments[..] else {
        return Err("usage: render TEMPLATE TOKENIZER [CONFIG [TRAIN_ON]]".into());
    };
    let text = fs::read_to_string(path)?;
    let template = match path.ends_with(".json") {
        true => ChatTemplate::from_config(path, &text)?,
        false => ChatTemplate::from_jinja(path, &text),
    };
    let template = match arguments.get(2).filter(|config| *config != "-") {
        Some(config) => template.with_tokens_of(config, &fs::read_to_string(config)?)?,
        None => template,
    };
    let train_on = match arguments.get(3).map(String::as_str) {
        None | Some("assistant") => TrainOn::Assistant,
        Some("last") => TrainOn::Last,
        Some("all") => TrainOn::All,
        Some(other) => return Err(format!("`{other}` is not `assistant`, `last` or `all`").into()),
    };
    let tokenizer = tokenizers::from_json(&tokenizers::canonicalize_str(&fs::read_to_string(tokenizer)?)?)
        .map_err(|error| error.to_string())?;
    let chats = Chats::new(&template, ChatOptions { train_on, now_unix_s: 1_767_225_600 })?;
    for record in io::stdin().lock().lines() {
        let record = record?;
        let line = match (chats.text(&record), chats.document(&record, &tokenizer)) {
            (Ok(text), Ok(document)) => serde_json::json!({
                "text": text.text, "ids": document.ids, "learned": document.learned,
                "shown": show(&document, &tokenizer, env::var_os("COLOURS").is_some()),
            }),
            (Err(error), _) | (_, Err(error)) => serde_json::json!({ "error": error.to_string() }),
        };
        writeln!(io::stdout(), "{line}")?;
    }
    Ok(())
}
