//! The profile of AWS's own programs: the settings and credentials in `~/.aws/config` and `~/.aws/credentials`. Keys,
//! programs that print credentials, and web identities are used directly. Credentials that AWS has to be asked for
//! first (SSO, roles of another profile) come from its command `aws`.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use object_store::{
    CredentialProvider, Error, Result,
    aws::{AwsCredential, AwsCredentialProvider},
};
use serde::Deserialize;

use crate::{StoreError, StoreOptions};

/// The profile that is used if none is named.
const DEFAULT: &str = "default";
/// Size of the largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How long credentials are used before they are read again: other programs renew them before they expire.
const KEPT: Duration = Duration::from_secs(300);
/// How long a program may take to print credentials.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Most characters of a program's error that are shown.
const MAX_SHOWN: usize = 300;

/// The settings and credentials that a profile gives to a store.
pub(crate) struct AwsProfile {
    /// Its settings, by the names of the environment variables that take precedence over them.
    pub(crate) settings: StoreOptions,
    /// Its credentials, if the environment has none.
    pub(crate) credentials: Option<AwsCredentialProvider>,
}

impl AwsProfile {
    /// Reads the profile that the options name, or the default one, if there is one.
    pub(crate) fn of(options: &StoreOptions) -> Result<Option<Self>, StoreError> {
        let files = ProfileFiles::of(options);
        let has_credentials =
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"];
        let has_credentials = has_credentials.iter().any(|name| options.value(name).is_some());
        let keys = match files.read() {
            Ok(Some(keys)) => keys,
            Ok(None) => return Ok(None),
            // The environment has what is needed.
            Err(_) if has_credentials => return Ok(None),
            Err(problem) => return Err(files.wrong(problem)),
        };
        let has = |names: &[&str]| names.iter().any(|name| options.value(name).is_some());
        let mut settings = Vec::new();
        let mut take = |key: &str, name: &'static str, instead: &[&str]| {
            if let Some(value) = keys.get(key)
                && !has(instead)
            {
                settings.push((name, value.clone()));
            }
        };
        take("region", "AWS_REGION", &["AWS_REGION", "AWS_DEFAULT_REGION"]);
        take("endpoint_url", "AWS_ENDPOINT_URL", &["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]);
        let mut credentials: Option<AwsCredentialProvider> = None;
        if !has_credentials {
            match CredentialSource::of(&files.profile, &keys).map_err(|problem| files.wrong(problem))? {
                Some(CredentialSource::WebIdentity) => {
                    take("web_identity_token_file", "AWS_WEB_IDENTITY_TOKEN_FILE", &[]);
                    take("role_arn", "AWS_ROLE_ARN", &[]);
                    take("role_session_name", "AWS_ROLE_SESSION_NAME", &[]);
                }
                Some(_) => credentials = Some(Arc::new(ProfileCredentials { files, last: Default::default() })),
                None => {}
            }
        }
        let settings: StoreOptions = settings.into_iter().collect();
        settings.check().map_err(|error| match error {
            StoreError::Setting { name, problem } => ProfileFiles::of(options).wrong(format!("its {name} {problem}")),
            error => error,
        })?;
        Ok(Some(Self { settings, credentials }))
    }
}

/// The files of profiles, and the name of the used profile.
#[derive(Clone, Debug)]
struct ProfileFiles {
    profile: String,
    /// Whether the profile was asked for.
    is_named: bool,
    config: Option<String>,
    credentials: Option<String>,
}

type ProfileKeys = BTreeMap<String, String>;

impl ProfileFiles {
    fn of(options: &StoreOptions) -> Self {
        let in_home = |name: &str| options.value("HOME").map(|home| format!("{home}/.aws/{name}"));
        let file = |variable: &str, name: &str| options.value(variable).map(str::to_owned).or_else(|| in_home(name));
        let named = options.value("AWS_PROFILE").or_else(|| options.value("AWS_DEFAULT_PROFILE"));
        Self {
            profile: named.unwrap_or(DEFAULT).to_owned(),
            is_named: named.is_some(),
            config: file("AWS_CONFIG_FILE", "config"),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        }
    }

    fn wrong(&self, problem: String) -> StoreError {
        StoreError::Profile { profile: self.profile.clone(), problem }
    }

    /// Returns the keys of the profile, from both files; `None` if it is in neither and was not asked for.
    fn read(&self) -> Result<Option<ProfileKeys>, String> {
        let name = &self.profile;
        let is_config = |section: &str| match section.strip_prefix("profile") {
            Some(rest) if rest.starts_with([' ', '\t']) => unquoted(rest.trim()) == name,
            _ => section == DEFAULT && name == DEFAULT,
        };
        let mut found: Option<ProfileKeys> = None;
        let mut take = |file: &Option<String>, is_ours: &dyn Fn(&str) -> bool| {
            if let Some(text) = file.as_deref().map(read_file).transpose()?.flatten()
                && let Some(keys) = keys_of(&text, is_ours)
            {
                found.get_or_insert_default().extend(keys);
            }
            Ok::<_, String>(())
        };
        take(&self.config, &is_config)?;
        take(&self.credentials, &|section| unquoted(section) == name)?;
        if found.is_none() && self.is_named {
            let files: Vec<_> = [&self.credentials, &self.config].into_iter().flatten().collect();
            let files = files.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(" nor in ");
            return Err(format!("it is neither in {files}"));
        }
        Ok(found)
    }
}

/// Returns the text of a file; `None` if there is none.
fn read_file(path: &str) -> Result<Option<String>, String> {
    let unreadable = |problem: String| format!("`{path}` cannot be read: {problem}");
    match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(unreadable(error.to_string())),
        Ok(file) if !file.is_file() => Err(unreadable("it is not a file".to_owned())),
        Ok(file) if file.len() > MAX_FILE_BYTES => Err(unreadable(format!("it has more than {MAX_FILE_BYTES} bytes"))),
        Ok(_) => std::fs::read_to_string(path).map(Some).map_err(|error| unreadable(error.to_string())),
    }
}

fn unquoted(text: &str) -> &str {
    let quoted = |mark: char| text.strip_prefix(mark)?.strip_suffix(mark);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text)
}

/// Returns the keys of the sections that are `ours`; `None` if there is no such section.
fn keys_of(text: &str, is_ours: impl Fn(&str) -> bool) -> Option<ProfileKeys> {
    let (mut found, mut is_inside) = (None::<ProfileKeys>, false);
    for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.trim_end().strip_prefix('[').and_then(|line| Some(line.split_once(']')?.0)) {
            is_inside = is_ours(section.trim());
            if is_inside {
                found.get_or_insert_default();
            }
        } else if is_inside
            // A line that is indented belongs to a group of settings, such as those of `s3 =`.
            && !line.starts_with([' ', '\t'])
            && let Some((key, value)) = line.split_once('=')
            && let Some(found) = &mut found
        {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

/// The source of a profile's credentials.
#[derive(Debug, PartialEq, Eq)]
enum CredentialSource {
    Keys { id: String, secret: String, token: Option<String> },
    WebIdentity,
    Program(Vec<String>),
}

impl CredentialSource {
    /// Finds the source in the order of AWS's own programs; `None` if the profile has none.
    fn of(profile: &str, keys: &ProfileKeys) -> Result<Option<Self>, String> {
        let has = |key: &str| keys.get(key).is_some_and(|value| !value.is_empty());
        let value = |key: &str| keys.get(key).filter(|value| !value.is_empty()).cloned();
        let by_aws = || {
            let words = ["aws", "configure", "export-credentials", "--profile", profile, "--format", "process"];
            Self::Program(words.map(str::to_owned).to_vec())
        };
        Ok(Some(if has("role_arn") && (has("source_profile") || has("credential_source")) {
            by_aws()
        } else if has("role_arn") && has("web_identity_token_file") {
            Self::WebIdentity
        } else if has("sso_session") || has("sso_start_url") || has("sso_account_id") {
            by_aws()
        } else if has("aws_access_key_id") || has("aws_secret_access_key") {
            let missing = |key: &str| format!("it has no {key}");
            let id = value("aws_access_key_id").ok_or_else(|| missing("aws_access_key_id"))?;
            let secret = value("aws_secret_access_key").ok_or_else(|| missing("aws_secret_access_key"))?;
            Self::Keys { id, secret, token: value("aws_session_token") }
        } else if let Some(line) = value("credential_process") {
            Self::Program(words_of(&line).ok_or("its credential_process has a quote without an end")?)
        } else if has("login_session") {
            by_aws()
        } else {
            return Ok(None);
        }))
    }
}

/// Splits a command line into words, which may be in quotes; `None` if a quote has no end.
fn words_of(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(mark)) if c == mark => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// The credentials that a program prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

/// The credentials of a profile, which are read again from time to time.
struct ProfileCredentials {
    files: ProfileFiles,
    /// The credentials that were read last, and when.
    last: tokio::sync::Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl std::fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileCredentials").field("files", &self.files).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let mut last = self.last.lock().await;
        if let Some((since, credential)) = &*last
            && since.elapsed() < KEPT
        {
            return Ok(credential.clone());
        }
        let credential = match (self.read().await, last.take()) {
            (Ok(credential), _) => Arc::new(credential),
            // The last credentials may be valid for longer; if they are not, the store reports it.
            (Err(_), Some((_, credential))) => credential,
            (Err(problem), None) => {
                let source = StoreError::Profile { profile: self.files.profile.clone(), problem };
                return Err(Error::Unauthenticated { path: self.files.profile.clone(), source: source.into() });
            }
        };
        *last = Some((Instant::now(), credential.clone()));
        Ok(credential)
    }
}

impl ProfileCredentials {
    async fn read(&self) -> Result<AwsCredential, String> {
        let keys = self.files.read()?.unwrap_or_default();
        match CredentialSource::of(&self.files.profile, &keys)? {
            Some(CredentialSource::Keys { id: key_id, secret: secret_key, token }) => {
                Ok(AwsCredential { key_id, secret_key, token })
            }
            Some(CredentialSource::Program(words)) => printed_by(&words).await,
            Some(CredentialSource::WebIdentity) | None => Err("it has no credentials any more".to_owned()),
        }
    }
}

/// Runs a program that prints credentials.
async fn printed_by(words: &[String]) -> Result<AwsCredential, String> {
    let shown = words.join(" ");
    let [program, arguments @ ..] = words else { return Err("its credential_process is empty".to_owned()) };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PROGRAM_TIMEOUT, command.output()).await {
        Err(_) => return Err(format!("`{shown}` printed no credentials within {} s", PROGRAM_TIMEOUT.as_secs())),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound && !Path::new(program).is_absolute() => {
            return Err(format!("its credentials come from `{shown}`, and there is no program `{program}`"));
        }
        Ok(output) => output.map_err(|error| format!("`{shown}` cannot be run: {error}"))?,
    };
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: String = errors.trim().chars().take(MAX_SHOWN).collect();
        return Err(format!("`{shown}` failed ({}): {errors}", output.status));
    }
    let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    // What it printed is secret, so no error shows it.
    let printed = serde_json::from_slice::<Printed>(&output.stdout).ok().filter(|printed| {
        printed.version == 1
            && [&printed.access_key_id, &printed.secret_access_key].into_iter().all(|text| is_text(text))
            && printed.session_token.as_deref().is_none_or(is_text)
    });
    let printed = printed.ok_or_else(|| format!("`{shown}` printed no credentials of version 1"))?;
    let Printed { access_key_id: key_id, secret_access_key: secret_key, session_token: token, .. } = printed;
    Ok(AwsCredential { key_id, secret_key, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(keys: &[(&str, &str)]) -> Result<Option<CredentialSource>, String> {
        CredentialSource::of("dev", &keys.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn keys_programs_and_web_identities_are_used_and_the_rest_is_asked_of_aws() {
        let keys = [("aws_access_key_id", "a"), ("aws_secret_access_key", "b")];
        let found = CredentialSource::Keys { id: "a".into(), secret: "b".into(), token: None };
        assert_eq!(source(&keys), Ok(Some(found)));
        assert_eq!(source(&keys[..1]), Err("it has no aws_secret_access_key".to_owned()));
        let program = "\"/opt/my tool\" --for 'a \"b\"' c\\ d ''";
        let words = ["/opt/my tool", "--for", "a \"b\"", "c d", ""].map(str::to_owned).to_vec();
        assert_eq!(source(&[("credential_process", program)]), Ok(Some(CredentialSource::Program(words))));
        assert!(source(&[("credential_process", "a 'b")]).unwrap_err().contains("quote"));
        let web = [("role_arn", "r"), ("web_identity_token_file", "/t")];
        assert_eq!(source(&web), Ok(Some(CredentialSource::WebIdentity)));
        for by_aws in [[("sso_session", "s"), ("region", "r")], [("role_arn", "r"), ("source_profile", "base")]] {
            let Ok(Some(CredentialSource::Program(words))) = source(&by_aws) else { panic!("{by_aws:?}") };
            assert_eq!(words[..5], ["aws", "configure", "export-credentials", "--profile", "dev"]);
        }
        assert_eq!(source(&[("region", "eu-west-1")]), Ok(None));
    }

    #[test]
    fn a_profile_is_in_both_files_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let config = "# mine\n[default]\nregion = one\n[profile \"my dev\"]\nRegion=two\ns3 =\n  region = no\n[profiles]\nregion = no\n[sso-session my dev]\nregion = no\n";
        std::fs::write(path("config"), config).unwrap();
        std::fs::write(path("credentials"), "[my dev]\naws_access_key_id = a=b\n").unwrap();
        let options = |more: &[(&str, &str)]| {
            let files = [("AWS_CONFIG_FILE", path("config")), ("AWS_SHARED_CREDENTIALS_FILE", path("credentials"))];
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            files.into_iter().chain(more).collect::<StoreOptions>()
        };
        let read = |more: &[(&str, &str)]| ProfileFiles::of(&options(more)).read();
        assert_eq!(read(&[]).unwrap().unwrap()["region"], "one");
        let keys = read(&[("AWS_PROFILE", "my dev")]).unwrap().unwrap();
        assert_eq!((&*keys["region"], &*keys["aws_access_key_id"]), ("two", "a=b"));
        let problem = read(&[("AWS_PROFILE", "other")]).unwrap_err();
        assert!(problem.contains(&path("config")) && problem.contains(&path("credentials")), "{problem}");
        assert!(AwsProfile::of(&StoreOptions::default()).unwrap().is_none(), "no file is known");
        let home = StoreOptions::from_iter([("HOME", folder.path().to_str().unwrap())]);
        assert!(AwsProfile::of(&home).unwrap().is_none(), "there is no file");
    }
}
