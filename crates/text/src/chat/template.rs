//! Where a template comes from: files with Jinja, or `tokenizer_config.json`.

use std::collections::BTreeMap;

use serde_json::Value;
use spdl_types::Fingerprint;

use super::ChatError;

/// The special tokens of `tokenizer_config.json` that a template can use by their names.
pub(super) const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// The name of the template for all conversations.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools, if there is one of its own.
const TOOL_USE: &str = "tool_use";

/// The chat template of a model, and the special tokens that it can use. A model may have several templates, each with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    /// Where it comes from: what errors call it.
    origin: String,
    named: BTreeMap<String, NamedTemplate>,
    /// The special tokens that are set; none if no settings of a tokenizer were given.
    pub(super) tokens: Option<Vec<(String, String)>>,
}

/// One of the templates of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedTemplate {
    /// The file that it comes from: what errors call it.
    pub(super) origin: String,
    pub(super) text: String,
}

impl ChatTemplate {
    /// Takes a template from the text of a file with Jinja, such as `chat_template.jinja`. `origin` is what errors call it.
    #[must_use]
    pub fn from_jinja(origin: &str, template: &str) -> ChatTemplate {
        ChatTemplate { origin: origin.to_owned(), named: BTreeMap::new(), tokens: None }
            .with_named(DEFAULT, origin, template)
    }

    /// Takes the templates and the special tokens from the text of a `tokenizer_config.json`.
    ///
    /// # Errors
    ///
    /// An error if the text is no such file, or if it has no template.
    pub fn from_config(origin: &str, config: &str) -> Result<ChatTemplate, ChatError> {
        let wrong = |problem: &str| Err(ChatError::Config { name: origin.to_owned(), problem: problem.to_owned() });
        let config = parse(origin, config)?;
        let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let named: Vec<(String, String)> = match config.get("chat_template") {
            Some(Value::String(template)) => vec![(DEFAULT.to_owned(), template.clone())],
            Some(Value::Array(named)) => {
                named.iter().filter_map(|one| Some((text(one, "name")?, text(one, "template")?))).collect()
            }
            None | Some(Value::Null) => {
                return wrong("has no `chat_template`; newer models have it in `chat_template.jinja`");
            }
            Some(_) => return wrong("its `chat_template` is neither a text nor a list of named texts"),
        };
        if named.is_empty() {
            return wrong("its `chat_template` is a list without a template");
        }
        let none = ChatTemplate { origin: origin.to_owned(), named: BTreeMap::new(), tokens: Some(tokens(&config)) };
        Ok(named.iter().fold(none, |all, (name, template)| all.with_named(name, origin, template)))
    }

    /// Adds the model's template for conversations with tools.
    #[must_use]
    pub fn with_tool_use(self, origin: &str, template: &str) -> ChatTemplate {
        self.with_named(TOOL_USE, origin, template)
    }

    fn with_named(mut self, name: &str, origin: &str, template: &str) -> ChatTemplate {
        self.named.insert(name.to_owned(), NamedTemplate { origin: origin.to_owned(), text: template.to_owned() });
        self
    }

    /// Keeps only the template of this name, for all conversations.
    ///
    /// # Errors
    ///
    /// An error that names the templates that there are.
    pub fn only(mut self, name: &str) -> Result<ChatTemplate, ChatError> {
        let chosen = self.named.remove(name).ok_or_else(|| self.without(name))?;
        self.named = [(DEFAULT.to_owned(), chosen)].into();
        Ok(self)
    }

    /// Returns the template for all conversations.
    ///
    /// # Errors
    ///
    /// An error that names the templates that there are.
    pub(super) fn default(&self) -> Result<&NamedTemplate, ChatError> {
        self.named.get(DEFAULT).ok_or_else(|| self.without(DEFAULT))
    }

    /// Returns the template for conversations with tools, if there is one of its own.
    pub(super) fn tool_use(&self) -> Option<&NamedTemplate> {
        self.named.get(TOOL_USE)
    }

    /// Returns the error for a name that no template has.
    fn without(&self, name: &str) -> ChatError {
        let names: Vec<_> = self.named.keys().map(|name| format!("`{name}`")).collect();
        let problem = format!("has no chat template `{name}`, but {}: choose one with --template", names.join(", "));
        ChatError::Config { name: self.origin.clone(), problem }
    }

    /// Returns what stands for all that decides the text of a conversation, except the date.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let text = |name: &str| self.named.get(name).map(|template| &template.text);
        let parts = (text(DEFAULT), text(TOOL_USE), &self.tokens);
        Fingerprint::of(&serde_json::to_vec(&parts).expect("plain data serialises"))
    }

    /// Returns whether the template uses the date: its function `strftime_now`.
    #[must_use]
    pub fn uses_date(&self) -> bool {
        let used = [DEFAULT, TOOL_USE].into_iter().filter_map(|name| self.named.get(name));
        used.into_iter().any(|template| template.text.contains("strftime_now"))
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

/// Returns the special tokens, each of which is a text or an object with a `content`.
fn tokens(config: &Value) -> Vec<(String, String)> {
    let tokens = SPECIAL_TOKENS.iter().filter_map(|name| {
        let token = config.get(*name)?;
        let token = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some(((*name).to_owned(), token.to_owned()))
    });
    tokens.collect()
}
