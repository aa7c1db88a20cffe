//! One run: a provider, a gateway with the provider's profile, a front, and one SDK program.

use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::watch;

use crate::dialects::Dialect;
use crate::front;
use crate::install::Runner;
use crate::kit::{Gateway, Setup};
use crate::provider::{Fault, Provider};

/// No SDK waits this long by its own rules.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);

/// How long an SDK waits for an answer: where it must give up, and where it must not.
const SHORT_SECONDS: &str = "2";
const LONG_SECONDS: &str = "20";

/// An SDK and the provider that it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sdk {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) runner: Runner,
    pub(crate) program: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) profile: &'static str,
    /// The path of its one call.
    pub(crate) path: &'static str,
    /// What a route in front of a provider that dedupes says besides its profile.
    pub(crate) lines: &'static str,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The gateway's answer to the first attempt does not reach the SDK.
    Lost,
    /// The upstream misbehaves on the first dispatch.
    Upstream(Fault),
}

impl Trouble {
    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lost => "answer lost on the way back",
            Self::Upstream(Fault::None) => "none",
            Self::Upstream(Fault::Drop) => "upstream executes, closes",
            Self::Upstream(Fault::Reset) => "upstream executes, resets",
            Self::Upstream(Fault::Slow) => "slower than the SDK waits",
            Self::Upstream(Fault::FailBefore) => "500 before executing",
            Self::Upstream(Fault::FailAfter) => "500 after executing",
        }
    }

    fn fault(self) -> Fault {
        match self {
            Self::Lost => Fault::None,
            Self::Upstream(fault) => fault,
        }
    }
}

/// What a program told about its SDK.
#[derive(Debug, Clone, Deserialize)]
#[expect(dead_code, reason = "printed when an assertion fails")]
pub(crate) struct Told {
    pub(crate) version: String,
    /// How often the SDK was called with the same key.
    pub(crate) calls: usize,
    /// The errors that those calls raised.
    pub(crate) raised: Vec<String>,
    /// `object` or `error`.
    pub(crate) result: String,
    /// The object's type and id.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    /// The error's class, and what is in it.
    pub(crate) class: Option<String>,
    pub(crate) code: Option<serde_json::Value>,
    pub(crate) status: Option<u16>,
    pub(crate) message: Option<String>,
}

impl Told {
    /// The last word of the caller's story.
    pub(crate) fn ending(&self) -> String {
        let name = self.kind.as_deref().or(self.class.as_deref());
        let mut text = name.unwrap_or(&self.result).to_owned();
        let code = self.code.as_ref().and_then(|code| code.as_str());
        if let Some(code) = code.filter(|code| !code.is_empty() && *code != text) {
            text = format!("{text} {code}");
        }
        if self.calls > 1 {
            text = format!("{text}, called {} times", self.calls);
        }
        text
    }
}

/// What happened.
#[derive(Debug)]
#[expect(dead_code, reason = "printed when an assertion fails")]
pub(crate) struct Story {
    pub(crate) told: Told,
    /// Writes that the SDK sent.
    pub(crate) attempts: usize,
    /// Writes that the upstream got.
    pub(crate) dispatches: usize,
    pub(crate) effects: usize,
    /// Why the upstream let requests not in.
    pub(crate) refusals: Vec<String>,
    /// What the gateway logged.
    pub(crate) log: String,
}

/// A run to be.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    sdk: Sdk,
    trouble: Trouble,
    dedupes: bool,
    only_profile: bool,
    scenario: &'static str,
    calls: usize,
    more: String,
}

impl Stage {
    /// A provider that dedupes, and an SDK that is called once.
    pub(crate) fn new(sdk: Sdk, trouble: Trouble) -> Self {
        Self {
            sdk,
            trouble,
            dedupes: true,
            only_profile: false,
            scenario: "create",
            calls: 1,
            more: String::new(),
        }
    }

    /// The upstream does not dedupe, and the profile alone decides.
    pub(crate) fn opaque(mut self) -> Self {
        self.dedupes = false;
        self.by_profile()
    }

    /// The profile alone decides, without the lines of the SDK's own.
    pub(crate) fn by_profile(mut self) -> Self {
        self.only_profile = true;
        self
    }

    /// The caller calls up to so often with the same key.
    pub(crate) fn calls(mut self, calls: usize) -> Self {
        self.calls = calls;
        self
    }

    /// One key for two amounts.
    pub(crate) fn mismatch(mut self) -> Self {
        self.scenario = "mismatch";
        self
    }

    /// A call that changes nothing and has no key.
    pub(crate) fn read(mut self) -> Self {
        self.scenario = "read";
        self
    }

    /// One key on two paths.
    pub(crate) fn elsewhere(mut self) -> Self {
        self.scenario = "elsewhere";
        self
    }

    /// With more lines in `[upstream]`.
    pub(crate) fn upstream(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.more);
        self
    }

    fn config(&self) -> String {
        let Sdk {
            profile,
            path,
            lines,
            ..
        } = self.sdk;
        let more = &self.more;
        let kind = if self.dedupes {
            "upstream = \"dedupes\"\nreexecute = true"
        } else {
            "upstream = \"opaque\""
        };
        let lines = if self.only_profile { "" } else { lines };
        // SDKs that honour Retry-After would wait for as long as this.
        let delay = "reconcile_delay = \"1s\"";
        format!(
            "profile = \"{profile}\"\n[upstream]\n{more}\n[[route]]\npath = \"{path}\"\n\
             {kind}\n{lines}\n{delay}\n"
        )
    }

    /// Runs it, with a row for the table.
    pub(crate) async fn run(self) -> Story {
        let attempts = watch::Sender::new(0);
        let (dialect, fault) = (self.sdk.dialect, self.trouble.fault());
        let provider = Provider::start(dialect, self.dedupes, fault, attempts.clone()).await;
        let setup = Setup::new(provider.address).config(&self.config());
        let gateway: Gateway = setup.start().await;
        let loses_first = self.trouble == Trouble::Lost;
        let front = front::start(gateway.address, attempts.clone(), loses_first).await;
        let told = self.program(&format!("http://{front}")).await;
        let story = Story {
            told,
            attempts: *attempts.borrow(),
            dispatches: provider.dispatches(),
            effects: provider.effects(),
            refusals: provider.refusals(),
            log: gateway.log(),
        };
        self.print(&story);
        story
    }

    /// Runs the program and reads what it tells.
    pub(crate) async fn program(&self, url: &str) -> Told {
        let Sdk {
            runner, program, ..
        } = self.sdk;
        let made = tokio::task::spawn_blocking(move || runner.command(program));
        let mut command = Command::from(made.await.expect("installed"));
        let seconds = if self.trouble == Trouble::Upstream(Fault::Slow) {
            SHORT_SECONDS
        } else {
            LONG_SECONDS
        };
        command.args([url, self.scenario, seconds, &self.calls.to_string()]);
        command.kill_on_drop(true);
        let ended = tokio::time::timeout(PROGRAM_PATIENCE, command.output()).await;
        let output = ended.expect("an end").expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, words) = (text(&output.stdout), text(&output.stderr));
        let line = said.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said}{words}"))
    }

    /// A row of the table that `scripts/sdk` prints.
    pub(crate) fn print(&self, story: &Story) {
        let (Sdk { name, .. }, told) = (self.sdk, &story.told);
        let fault = match self.scenario {
            "mismatch" => "one key for two amounts",
            "elsewhere" => "one key on two paths",
            "read" => "none; a call without a key",
            _ => self.trouble.name(),
        };
        let setting = match (self.dedupes, self.only_profile, self.more.as_str()) {
            (false, ..) => "opaque: ".to_owned(),
            (true, true, _) => "saved: ".to_owned(),
            (true, false, "") => String::new(),
            (true, false, more) => format!("{more}: "),
        };
        println!(
            "sdk-row\t{name}\t{}\t{setting}{fault}\t{}\t{}\t{}",
            told.version,
            story.attempts,
            story.effects,
            told.ending(),
        );
    }
}
