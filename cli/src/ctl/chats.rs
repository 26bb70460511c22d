//! The options of `tokenize` for chats, and the template that they name.

use std::{
    num::NonZeroUsize,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use spdl_dataset::DatasetError;
use spdl_shard::store::DatasetStore;
use spdl_text::{
    TextPart,
    chat::{ChatError, ChatOptions, ChatTemplate, Chats, TrainOn, unix_s_of_date},
};

use super::{
    CtlError,
    model::{TOKENIZER_CONFIG, file_of, open_folder, read, read_if_there, unusable},
    output::raw,
    shown::{for_terminal, in_colours},
};

/// The file with the template in the folder of a model.
const TEMPLATE: &str = "chat_template.jinja";
const DAY_S: u64 = 86_400;

/// Which tokens of a chat are learned.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum TrainOnArg {
    /// What the assistant writes.
    #[default]
    Assistant,
    /// Its last turn.
    Last,
    /// Everything.
    All,
}

/// Arguments about chats.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("chats").multiple(true)))]
pub(super) struct ChatArgs {
    /// Each line is a conversation: `messages`, `conversations`, an instruction with its output, or `prompt` and `completion`. The template
    /// beside the tokenizer writes it as text: chat_template.jinja, or that in tokenizer_config.json; with tools, its `tool_use`, if it has one.
    #[arg(long, group = "chats")]
    chat: bool,
    /// The template of chats: the name of one of the model's, such as `rag`, or a file with Jinja, or a tokenizer_config.json, on disk or as a
    /// URL. Implies --chat.
    #[arg(long, value_name = "NAME|FILE", group = "chats")]
    template: Option<String>,
    /// Which tokens of a chat are learned.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "chats")]
    train_on: TrainOnArg,
    /// The date for templates that write it; today, in UTC, when not given.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date, requires = "chats")]
    date: Option<i64>,
    /// First prints so many chats of the source: learned text green, the rest dimmed, and between `[[` and `]]` where there are no colours.
    #[arg(long, value_name = "N", requires = "chats", conflicts_with = "json")]
    pub(super) show: Option<NonZeroUsize>,
}

impl ChatArgs {
    /// Returns whether the source has chats.
    pub(super) const fn are_given(&self) -> bool {
        self.chat || self.template.is_some()
    }

    /// Opens the template, of a tokenizer in the folder `model`.
    pub(super) async fn open(&self, model: &DatasetStore) -> Result<Chats, CtlError> {
        let template = match &self.template {
            Some(name) if is_name(name) => named(model, name).await?,
            Some(path) => {
                let (folder, name) = file_of(path);
                let text = read(&open_folder(folder).await?, name).await?;
                match name.ends_with(".json") {
                    true => ChatTemplate::from_config(path, &text).map_err(|error| wrong(path, error))?,
                    false => with_tokens(ChatTemplate::from_jinja(path, &text), model).await?,
                }
            }
            None => beside(model).await?,
        };
        let train_on = match self.train_on {
            TrainOnArg::Assistant => TrainOn::Assistant,
            TrainOnArg::Last => TrainOn::Last,
            TrainOnArg::All => TrainOn::All,
        };
        let options = ChatOptions { train_on, now_unix_s: self.date.unwrap_or_else(today), ..ChatOptions::default() };
        Chats::new(&template, options).map_err(|error| option("template", error))
    }
}

/// Prints chats before the work begins.
pub(super) fn print(shown: &[Vec<TextPart>]) -> Result<(), CtlError> {
    let in_colours = in_colours();
    shown.iter().zip(1..).try_for_each(|(parts, number): (_, u32)| {
        raw(format!("--- chat {number} ---\n{}\n", for_terminal(parts, in_colours)).as_bytes())
    })
}

/// Returns whether a template is called by its name: it is no path, and no file of this name is there.
fn is_name(template: &str) -> bool {
    !template.contains(['/', '.']) && !Path::new(template).exists()
}

/// Returns the file in the folder of a model with a further template.
fn further(name: &str) -> String {
    format!("additional_chat_templates/{name}.jinja")
}

/// Reads the template of a name beside a tokenizer.
async fn named(model: &DatasetStore, name: &str) -> Result<ChatTemplate, CtlError> {
    let file = further(name);
    if let Some(text) = read_if_there(model, &file).await? {
        return with_tokens(ChatTemplate::from_jinja(&model.url_of(&file), &text), model).await;
    }
    let all = beside(model).await?;
    all.only(name).map_err(|error| option("template", format!("{error}, or give the path of a file")))
}

/// Reads the template beside a tokenizer, and that for conversations with tools, if there is one.
async fn beside(model: &DatasetStore) -> Result<ChatTemplate, CtlError> {
    if let Some(text) = read_if_there(model, TEMPLATE).await? {
        let template = ChatTemplate::from_jinja(&model.url_of(TEMPLATE), &text);
        let tool_use = further("tool_use");
        let template = match read_if_there(model, &tool_use).await? {
            Some(text) => template.with_tool_use(&model.url_of(&tool_use), &text),
            None => template,
        };
        return with_tokens(template, model).await;
    }
    let config = read_if_there(model, TOKENIZER_CONFIG).await?;
    let name = model.url_of(TOKENIZER_CONFIG);
    match config.map(|config| ChatTemplate::from_config(&name, &config)) {
        Some(Ok(template)) => Ok(template),
        Some(Err(error)) => {
            Err(option("chat", format!("finds no template beside the tokenizer: {error}; give one with --template")))
        }
        None => Err(option(
            "chat",
            format!("finds no template beside the tokenizer, as `{TEMPLATE}` or in `{name}`: give one with --template"),
        )),
    }
}

/// Adds the special tokens that the settings beside the tokenizer name, if there are any.
async fn with_tokens(template: ChatTemplate, model: &DatasetStore) -> Result<ChatTemplate, CtlError> {
    let Some(config) = read_if_there(model, TOKENIZER_CONFIG).await? else { return Ok(template) };
    let name = model.url_of(TOKENIZER_CONFIG);
    template.with_tokens_of(&name, &config).map_err(|error| wrong(&name, error))
}

fn wrong(path: &str, error: ChatError) -> CtlError {
    unusable(path, format!("cannot be used: {error}"))
}

fn option(option: &'static str, problem: impl ToString) -> CtlError {
    DatasetError::Option { option, problem: problem.to_string() }.into()
}

fn date(text: &str) -> Result<i64, String> {
    unix_s_of_date(text).ok_or_else(|| "a day as 2026-01-31 is expected".to_owned())
}

/// Returns when today began, in UTC.
fn today() -> i64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now_s / DAY_S * DAY_S).unwrap_or_default()
}
