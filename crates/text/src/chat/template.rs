//! Where a template comes from: a file with Jinja, or `tokenizer_config.json`.

use serde_json::Value;
use spdl_types::Fingerprint;

use super::ChatError;

/// The special tokens of `tokenizer_config.json` that a template can use by their names.
pub(super) const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The text of a chat template, and the special tokens that it can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    pub(super) name: String,
    pub(super) default: String,
    /// The template for conversations with tools, if there is one of its own.
    pub(super) tool_use: Option<String>,
    /// The special tokens that are set; none if no settings of a tokenizer were given.
    pub(super) tokens: Option<Vec<(String, String)>>,
}

impl ChatTemplate {
    /// Takes a template from the text of a file with Jinja, such as `chat_template.jinja`. `name` is what errors call it.
    #[must_use]
    pub fn from_jinja(name: &str, template: &str) -> ChatTemplate {
        ChatTemplate { name: name.to_owned(), default: template.to_owned(), tool_use: None, tokens: None }
    }

    /// Takes a template and the special tokens from the text of a `tokenizer_config.json`.
    ///
    /// # Errors
    ///
    /// An error if the text is no such file, or if it has no template.
    pub fn from_config(name: &str, config: &str) -> Result<ChatTemplate, ChatError> {
        let wrong = |problem: &str| ChatError::Config { name: name.to_owned(), problem: problem.to_owned() };
        let config = parse(name, config)?;
        let (default, tool_use) = match config.get("chat_template") {
            Some(Value::String(template)) => (Some(template.clone()), None),
            Some(Value::Array(named)) => (of_name(named, "default"), of_name(named, "tool_use")),
            None | Some(Value::Null) => {
                return Err(wrong("has no `chat_template`; newer models have it in `chat_template.jinja`"));
            }
            Some(_) => return Err(wrong("its `chat_template` is neither a text nor a list of named texts")),
        };
        let default = default.ok_or_else(|| wrong("none of its chat templates has the name `default`"))?;
        Ok(ChatTemplate { name: name.to_owned(), default, tool_use, tokens: Some(tokens(&config)) })
    }

    /// Returns what stands for all that decides the text of a conversation, except the date.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let parts = (&self.default, &self.tool_use, &self.tokens);
        Fingerprint::of(&serde_json::to_vec(&parts).expect("plain data serialises"))
    }

    /// Returns whether the template uses the date: its function `strftime_now`.
    #[must_use]
    pub fn uses_date(&self) -> bool {
        [Some(&self.default), self.tool_use.as_ref()].into_iter().flatten().any(|text| text.contains("strftime_now"))
    }

    /// Adds the special tokens from the text of a `tokenizer_config.json`, whose own template, if any, is not used.
    ///
    /// # Errors
    ///
    /// An error if the text is no such file.
    pub fn with_tokens_of(mut self, name: &str, config: &str) -> Result<ChatTemplate, ChatError> {
        self.tokens = Some(tokens(&parse(name, config)?));
        Ok(self)
    }
}

fn parse(name: &str, config: &str) -> Result<Value, ChatError> {
    let wrong = |problem: String| ChatError::Config { name: name.to_owned(), problem };
    let config: Value = serde_json::from_str(config).map_err(|error| wrong(format!("is no JSON: {error}")))?;
    if config.is_object() { Ok(config) } else { Err(wrong("is no object".to_owned())) }
}

fn of_name(named: &[Value], name: &str) -> Option<String> {
    let found = named.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name))?;
    Some(found.get("template")?.as_str()?.to_owned())
}

/// Returns the special tokens, each of which is a text or an object with a `content`.
fn tokens(config: &Value) -> Vec<(String, String)> {
    let tokens = SPECIAL_TOKENS.iter().filter_map(|name| {
        let token = config.get(*name)?;
        let token = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some(((*name).to_owned(), token.to_owned()))
    });
    tokens.collect()
}
