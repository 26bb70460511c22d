//! Chats: a record with a conversation becomes the ids of its tokens, and which of them the model learns. No file is read here.
//!
//! A template turns the conversation into text, as `apply_chat_template` of transformers does. The model learns what the assistant writes:
//! what stands in `{% generation %}` where the template has it, and otherwise what the template adds for each of these turns. Nothing is
//! guessed: what cannot be found for sure is an error that names the message and the template's line.

mod bounded;
mod conversation;
mod date;
mod mask;
mod python;
mod render;
mod spans;
mod tags;
mod template;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::Range};

use spdl_types::Fingerprint;

pub use date::unix_s_of_date;
pub use mask::TokenPieces;
pub use template::ChatTemplate;

use crate::{TextPart, text_parts};

use self::{
    conversation::Conversation,
    render::{RenderedChat, Renderer},
    spans::Turns,
};

/// Which tokens of a conversation the model learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrainOn {
    /// All turns of the assistant whose field `weight` is not 0. Of a record with a prompt and a completion, the completion's.
    #[default]
    Assistant,
    /// The last turn of the assistant.
    Last,
    /// All text, except turns of the assistant whose field `weight` is 0.
    All,
}

/// How chats become tokens.
#[derive(Clone, Copy, Debug)]
pub struct ChatOptions {
    /// Which tokens are learned; default: those of the assistant.
    pub train_on: TrainOn,
    /// What a template's `strftime_now` takes for now, in seconds since 1970. The same moment gives the same tokens.
    pub now_unix_s: i64,
    /// Limit of the work that a template may do for one text, in instructions of 64 bytes: templates come from other people. Default:
    /// 8 Mi; the longest text is so 64 times this number, 512 MiB, in bytes.
    pub max_work: u64,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { train_on: TrainOn::default(), now_unix_s: 0, max_work: 1 << 23 }
    }
}

/// Turns records into documents, by a template.
#[derive(Debug)]
pub struct Chats {
    renderer: Renderer,
    options: ChatOptions,
    fingerprint: Fingerprint,
    uses_date: bool,
}

/// A conversation as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatText {
    /// What the template renders.
    pub text: String,
    /// The bytes of it that are learned, in order.
    pub learned: Vec<Range<usize>>,
}

/// A conversation as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatDocument {
    /// The ids of its tokens.
    pub ids: Vec<u32>,
    /// Whether each token is learned; as many as `ids`.
    pub learned: Vec<bool>,
}

impl ChatDocument {
    /// Returns its text in parts.
    #[must_use]
    pub fn parts(&self, tokenizer: &impl TokenPieces) -> Vec<TextPart> {
        let tokens: Vec<_> = self.ids.iter().copied().zip(self.learned.iter().copied()).collect();
        text_parts(&tokens, tokenizer)
    }
}

/// What is wrong with a template or a conversation. The text follows the name of the document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A record that is no conversation.
    #[error("{0}")]
    Conversation(String),
    /// A template that does not compile, that refuses the conversation, or whose text cannot be divided.
    #[error("template `{name}`{}: {problem}", line.map(|line| format!(" line {line}")).unwrap_or_default())]
    Template {
        /// The template's name.
        name: String,
        /// The line of the template, from 1, if it is known.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// A file with settings that cannot be used.
    #[error("`{name}`: {problem}")]
    Config {
        /// The file's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A text that the tokenizer cannot encode, or whose tokens cannot be found in it.
    #[error("{0}")]
    Tokens(String),
}

impl ChatError {
    fn template(name: &str, line: Option<usize>, problem: impl Into<String>) -> ChatError {
        ChatError::Template { name: name.to_owned(), line, problem: problem.into() }
    }
}

impl Chats {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// An error if it does not compile, or if it uses a special token, such as `bos_token`, that is not known.
    pub fn new(template: &ChatTemplate, options: ChatOptions) -> Result<Chats, ChatError> {
        let renderer = Renderer::new(template, &options)?;
        Ok(Chats { renderer, options, fingerprint: template.fingerprint(), uses_date: template.uses_date() })
    }

    /// Returns what decides the documents of records, in words: names and values.
    #[must_use]
    pub fn facts(&self) -> BTreeMap<String, String> {
        let learned = format!("{:?}", self.options.train_on).to_lowercase();
        let date = self.uses_date.then(|| date::strftime(self.options.now_unix_s, "%F").unwrap_or_default());
        let facts = [("the template", self.fingerprint.to_string()), ("what is learned (--train-on)", learned)];
        let facts = facts.into_iter().chain(date.map(|date| ("the date (--date)", date)));
        facts.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Renders a record, which is JSON, and finds what is learned of it.
    ///
    /// # Errors
    ///
    /// An error if the record is no conversation, if the template refuses it, if nothing of it would be learned, or if what is learned
    /// cannot be told for sure.
    pub fn text(&self, record: &str) -> Result<ChatText, ChatError> {
        self.rendered(record).map(|(rendered, learned)| ChatText { text: rendered.text, learned })
    }

    fn rendered(&self, record: &str) -> Result<(RenderedChat, Vec<Range<usize>>), ChatError> {
        if tags::has_marks(record) {
            return Err(ChatError::Conversation(
                "it has one of the private characters U+10FFF0 to U+10FFF3, which mark places of a text here"
                    .to_owned(),
            ));
        }
        let record =
            serde_json::from_str(record).map_err(|error| ChatError::Conversation(format!("it is no JSON: {error}")))?;
        let conversation = Conversation::new(&record, self.renderer.source())?;
        spans::check(&conversation, self.options.train_on)?;
        let rendered = self.renderer.render(&conversation, &conversation.messages, false)?;
        spans::check_system(&conversation, &rendered)?;
        let learned = Turns::new(&self.renderer, &conversation, &rendered).learned(self.options.train_on)?;
        Ok((rendered, learned))
    }

    /// Renders a record, which is JSON, and encodes it. A token is learned if a part of it is.
    ///
    /// # Errors
    ///
    /// As [`Chats::text`]; also an error if the tokenizer cannot encode the text, or if its tokens cannot be found in it.
    pub fn document(&self, record: &str, tokenizer: &impl TokenPieces) -> Result<ChatDocument, ChatError> {
        let (rendered, spans) = self.rendered(record)?;
        let ids = tokenizer.encode(&rendered.text).map_err(ChatError::Tokens)?;
        let learned = mask::learned(tokenizer, &rendered.text, &ids, &spans)?;
        if !learned.contains(&true) {
            return Err(rendered.nothing_learned());
        }
        Ok(ChatDocument { ids, learned })
    }
}
