//! A real Chromium without a window, driven over WebDriver: Debian's packages `chromium` and `chromium-driver`, or Chrome
//! with its driver, from `PATH`.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::LONG;

/// A running browser with one tab; both end when it is dropped.
pub struct Browser {
    driver: Child,
    /// Kept open: the driver ends when it cannot write.
    _output: BufReader<ChildStdout>,
    address: String,
    session: String,
}

impl Browser {
    /// Starts a browser. Returns `None`, and prints the reason, where there is none.
    ///
    /// # Panics
    /// If there is a browser and it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let (Some(driver), Some(browser)) = (on_path(&["chromedriver"]), on_path(&["chromium", "google-chrome"]))
        else {
            crate::skipped("no browser: install Debian's packages `chromium` and `chromium-driver`");
            return None;
        };
        // The kernel kills the driver, which kills the browser, when the test process ends, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(driver).arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut driver = command.stderr(Stdio::null()).spawn().expect("the driver starts");
        let mut output = BufReader::new(driver.stdout.take().expect("a pipe"));
        let address = format!("127.0.0.1:{}", port(&mut output));
        let mut started = Self { driver, _output: output, address, session: String::new() };
        let arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"];
        let options = json!({ "binary": browser, "args": arguments });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let answer = started.send("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        started.session = answer["sessionId"].as_str().expect("a session").to_owned();
        Some(started)
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.command("url", json!({ "url": url }));
    }

    /// Runs the body of a function in the page and returns its value.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({ "script": script, "args": [] }))
    }

    /// Runs the body of an asynchronous function in the page, which passes its value to `done`.
    pub fn run_async(&self, script: &str) -> Value {
        let script = format!("const done = arguments[0]; {script}");
        self.command("execute/async", json!({ "script": script, "args": [] }))
    }

    /// Presses keys, one after the other: characters, or the codes that WebDriver has for other keys.
    pub fn press(&self, keys: &str) {
        let press = |key: char| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.command("actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Sends a command of Chromium's own protocol.
    pub fn chromium(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({ "cmd": command, "params": parameters }))
    }

    /// Gives the page this width in CSS pixels, that of a phone or of a desktop, and a light or a dark scheme.
    pub fn show_as(&self, width: u32, is_dark: bool) {
        let height = if width < 600 { 844 } else { 900 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.chromium("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } });
        self.chromium("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
    }

    /// Returns a picture of the whole page, as PNG in base64.
    pub fn screenshot(&self) -> String {
        let answer = self.chromium("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        answer["data"].as_str().expect("a picture").to_owned()
    }

    /// Returns the errors and warnings that the page and the browser wrote to the console since the last call.
    pub fn console(&self) -> Vec<String> {
        let answer = self.command("se/log", json!({ "type": "browser" }));
        let is_problem = |line: &&Value| ["WARNING", "SEVERE"].contains(&line["level"].as_str().unwrap_or_default());
        let lines = answer.as_array().into_iter().flatten().filter(is_problem);
        lines.map(|line| format!("{} {}", line["level"], line["message"])).collect()
    }

    /// Runs a script until its value is `true`.
    ///
    /// # Panics
    /// If it does not become that.
    #[track_caller]
    pub fn wait_for(&self, what: &str, script: &str) {
        let started = Instant::now();
        while self.run(script) != true {
            assert!(
                started.elapsed() < LONG,
                "{what} did not come about; the page shows:\n{}\n{:?}",
                self.run("return document.body.innerText").as_str().unwrap_or_default(),
                self.console()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, name: &str, body: Value) -> Value {
        self.send("POST", &format!("/session/{}/{name}", self.session), &body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = http(&self.address, method, path, &body.to_string()).expect("the driver answers");
        let value = serde_json::from_str::<Value>(&answer).expect("the driver answers with JSON")["value"].take();
        assert!(value["error"].is_null(), "{path}: {}", value["message"]);
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser. Killed without that, it would leave it behind.
        if !self.session.is_empty() {
            let _ = http(&self.address, "DELETE", &format!("/session/{}", self.session), "");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Reads the port from the first lines of the driver.
fn port(output: &mut impl BufRead) -> u16 {
    let mut lines = output.lines().map_while(Result::ok);
    let named = lines.find_map(|line| line.strip_suffix('.')?.rsplit_once("successfully on port ")?.1.parse().ok());
    named.expect("the driver names its port")
}

/// Sends a request and returns the body of the answer. The driver keeps the connection open.
fn http(address: &str, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONG))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = BufReader::new(stream);
    let mut bytes = 0;
    let mut line = String::new();
    while answer.read_line(&mut line)? > "\r\n".len() {
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            bytes = length.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        }
        line.clear();
    }
    let mut body = vec![0; bytes];
    answer.read_exact(&mut body)?;
    String::from_utf8(body).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|file| file.is_file())
}
