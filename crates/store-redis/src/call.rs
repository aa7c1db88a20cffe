//! One operation: where it goes, how often it is tried, and what its failure proves.
//!
//! A write is sent again only if the server's answer, or the lack of a connection, proves that it
//! was not executed. A write that was sent and not answered is reported as such, and never again
//! sent by itself.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_store::StoreError;
use redis::{Cmd, Pipeline, ServerError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::Answer;
use crate::dial::Link;
use crate::failure::{Failure, NoServer, Then};
use crate::keys::Shard;
use crate::node::Node;
use crate::options::{Address, Layout, RedisOptions};
use crate::replicas::Away;
use crate::scripts::{self, Script};
use crate::topology::Topology;

/// The first pause before looking again who is the primary.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How often in a row servers may point at each other before it counts as a slot on the move.
const REDIRECTS_MAX: u8 = 4;

/// What is to be done on the primary of a shard.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) shard: Shard,
    pub(crate) what: What<'a>,
    /// Whether it may change something that a caller relies on.
    pub(crate) writes: bool,
    /// Whether its answer counts only once the replicas have confirmed it.
    pub(crate) confirmed: bool,
    /// Whether it may be answered by a server that is still taking over the slot. Not so for a
    /// script that goes through an index: the rows may not have come yet.
    pub(crate) may_ask: bool,
    /// For what is better not done than in doubt: the mark that replicas must confirm before, if
    /// they did not confirm what came last.
    pub(crate) mark: Option<&'a [u8]>,
}

#[derive(Debug)]
pub(crate) enum What<'a> {
    /// A script with its keys and arguments.
    Script(&'static Script, &'a [&'a [u8]], &'a [&'a [u8]]),
    /// One command on one key.
    Command(&'static str, &'a [u8]),
}

/// How the next attempt differs from the first.
#[derive(Debug, Default)]
struct Route {
    /// Ask this server, which is taking over the slot.
    ask: Option<Address>,
    /// Send the script's text.
    with_text: bool,
}

#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) options: Arc<RedisOptions>,
    pub(crate) topology: Topology,
}

impl Caller {
    /// Does it, within the time that an operation may take.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.options.timeout;
        let mut route = Route::default();
        let mut pause = PAUSE_MIN;
        let mut redirects = 0;
        loop {
            let round = self.topology.round();
            let failure = match self.attempt(call, &route, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let (reason, then) = match failure {
                Failure::NotDone { reason, then } => (reason, then),
                Failure::MayBeDone { reason } if call.writes => {
                    return Err(StoreError::ambiguous(reason));
                }
                Failure::MayBeDone { reason } => return Err(StoreError::unavailable(reason)),
            };
            redirects += 1;
            match then {
                Then::SendScript if !route.with_text => {
                    route.with_text = true;
                    continue;
                }
                Then::Redirect(to) if redirects <= REDIRECTS_MAX => {
                    self.topology.moved(call.shard, &to);
                    route.ask = None;
                    continue;
                }
                Then::Ask(to) if call.may_ask && redirects <= REDIRECTS_MAX => {
                    route.ask = Some(to);
                    continue;
                }
                Then::GiveUp | Then::SendScript => return Err(StoreError::unavailable(reason)),
                Then::LookAgain | Then::Redirect(_) | Then::Ask(_) => {}
            }
            if Instant::now() + pause >= deadline {
                return Err(StoreError::unavailable(reason));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            redirects = 0;
            route.ask = None;
            // A failure to find out is no answer: the next attempt tells.
            let _ = timeout_at(deadline, self.topology.look_again(round)).await;
        }
    }

    async fn attempt(
        &self,
        call: &Call<'_>,
        route: &Route,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let connecting = async {
            let node = match &route.ask {
                Some(address) => self.topology.node(address),
                None => self.topology.primary(call.shard).await?,
            };
            let link = self.topology.link(&node).await?;
            Ok::<_, NoServer>((node, link))
        };
        let connected = timeout_at(deadline, connecting).await;
        let late = |_| Err(NoServer::silent("no connection could be made in time"));
        let connected = connected.unwrap_or_else(late);
        let (node, link) =
            connected.map_err(|why| Failure::not_done(why.reason, self.after_no_connection()))?;
        let waits = call.confirmed && self.options.wait_replicas > 0;
        if let Some(mark) = call.mark.filter(|_| waits) {
            let asking = self.ask_replicas(call, mark, route, (&node, &link), deadline);
            let asked = timeout_at(deadline, node.replicas().check(asking)).await;
            let late = |_| Err(Away::late(node.address()).into());
            asked.unwrap_or_else(late)?;
        }
        let sent = async {
            if waits || route.ask.is_some() {
                self.send_all(call, route, waits, &link).await
            } else {
                link.send(&call.what.command(route.with_text))
                    .await
                    .map(|answer| (answer, None))
            }
        };
        let (answer, confirmed) = match timeout_at(deadline, sent).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(error)) => {
                node.discard(&link);
                return Err(Failure::may_be_done(format!("{}: {error}", node.address())));
            }
            Err(_) => {
                node.discard(&link);
                let (address, patience) = (node.address(), self.options.timeout);
                let reason = format!("{address} did not answer within {patience:?}");
                return Err(Failure::may_be_done(reason));
            }
        };
        if let Answer::Error(error) = &answer {
            return Err(call.sorted(self.refused(error, &node, &link)));
        }
        match confirmed {
            Some(confirmed) => self.check_confirmed(&confirmed, &node).map(|()| answer),
            None => Ok(answer),
        }
    }

    /// Writes a mark, and waits for the replicas to confirm it. Whatever fails, nothing else was
    /// done.
    async fn ask_replicas(
        &self,
        call: &Call<'_>,
        mark: &[u8],
        route: &Route,
        (node, link): (&Node, &Arc<Link>),
        deadline: Instant,
    ) -> Result<(), Failure> {
        let keys = [mark];
        let marking = Call {
            what: What::Script(&scripts::MARK, &keys, &[]),
            mark: None,
            ..*call
        };
        let route = Route {
            ask: route.ask.clone(),
            with_text: true,
        };
        let sent = self.send_all(&marking, &route, true, link);
        let answers = match timeout_at(deadline, sent).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        let (answer, confirmed) = answers.map_err(|reason| {
            node.discard(link);
            let reason = format!("{}: {reason}", node.address());
            node.replicas().missed(&reason);
            Failure::not_done(reason, self.after_no_connection())
        })?;
        let done = match (answer, confirmed) {
            (Answer::Error(error), _) => Err(self.refused(&error, node, link)),
            (_, Some(confirmed)) => self.check_confirmed(&confirmed, node),
            (other, None) => Err(Failure::may_be_done(other.unexpected())),
        };
        done.map_err(|failure| match failure {
            Failure::MayBeDone { reason } => Failure::not_done(reason, Then::GiveUp),
            known @ Failure::NotDone { .. } => known,
        })
    }

    fn refused(&self, error: &ServerError, node: &Node, link: &Arc<Link>) -> Failure {
        if matches!(error.code(), "READONLY" | "MOVED") {
            node.distrust(link);
        }
        Failure::of_answer(error, node.address(), &self.options.layout)
    }

    /// What may help when there is no connection: with one server, nothing.
    fn after_no_connection(&self) -> Then {
        match self.options.layout {
            Layout::Single => Then::GiveUp,
            Layout::Sentinel { .. } | Layout::Cluster => Then::LookAgain,
        }
    }

    /// The answer, and how many replicas confirmed it if that was asked.
    async fn send_all(
        &self,
        call: &Call<'_>,
        route: &Route,
        waits: bool,
        link: &Link,
    ) -> Result<(Answer, Option<Answer>), redis::RedisError> {
        let mut pipeline = Pipeline::new();
        if route.ask.is_some() {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.what.command(route.with_text));
        if waits {
            let millis = u64::try_from(self.options.wait_timeout.as_millis()).unwrap_or(u64::MAX);
            let wait = pipeline.cmd("WAIT");
            wait.arg(self.options.wait_replicas).arg(millis);
        }
        let answers = link.send_all(&pipeline).await?;
        let asked = usize::from(route.ask.is_some());
        Ok(in_turn(answers.into_iter().skip(asked), waits))
    }

    fn check_confirmed(&self, confirmed: &Answer, node: &Node) -> Result<(), Failure> {
        let wanted = self.options.wait_replicas;
        let reason = match confirmed {
            Answer::Number(count) if *count >= i64::from(wanted) => {
                node.replicas().confirmed();
                return Ok(());
            }
            Answer::Number(count) => {
                let address = node.address();
                format!("{count} of {wanted} replicas of {address} confirmed in time")
            }
            Answer::Nothing
            | Answer::Bytes(_)
            | Answer::List(_)
            | Answer::Error(_)
            | Answer::Other => confirmed.unexpected(),
        };
        node.replicas().missed(&reason);
        Err(Failure::may_be_done(reason))
    }
}

/// The answer to the call, and to the wait after it. One that is missing is not "nothing is there".
fn in_turn(mut answers: impl Iterator<Item = Answer>, waits: bool) -> (Answer, Option<Answer>) {
    let mut next = || answers.next().unwrap_or(Answer::Other);
    (next(), waits.then(next))
}

impl Call<'_> {
    /// A script that met a row which is already on another server did nothing that counts, if it
    /// only reads.
    fn sorted(&self, failure: Failure) -> Failure {
        match failure {
            Failure::MayBeDone { reason }
                if !self.writes && reason.contains("non local key in a cluster") =>
            {
                Failure::not_done(reason, Then::LookAgain)
            }
            Failure::NotDone { .. } | Failure::MayBeDone { .. } => failure,
        }
    }
}

impl What<'_> {
    fn command(&self, with_text: bool) -> Cmd {
        match self {
            Self::Command(name, key) => {
                let mut command = redis::cmd(name);
                command.arg(*key);
                command
            }
            Self::Script(script, keys, arguments) => {
                let mut command = if with_text {
                    let mut command = redis::cmd("EVAL");
                    command.arg(script.text);
                    command
                } else {
                    let mut command = redis::cmd("EVALSHA");
                    command.arg(script.digest());
                    command
                };
                command.arg(keys.len());
                for part in keys.iter().chain(arguments.iter()) {
                    command.arg(*part);
                }
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Nothing" is a key that is free, and no confirmation asked for is one that is not needed.
    #[test]
    fn a_missing_answer_is_not_nothing() {
        let none = || std::iter::empty();
        assert_eq!(in_turn(none(), false), (Answer::Other, None));
        assert_eq!(in_turn(none(), true), (Answer::Other, Some(Answer::Other)));
        let one = || std::iter::once(Answer::Number(1));
        assert_eq!(in_turn(one(), false), (Answer::Number(1), None));
        let unconfirmed = (Answer::Number(1), Some(Answer::Other));
        assert_eq!(in_turn(one(), true), unconfirmed);
    }
}
