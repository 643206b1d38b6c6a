//! The process `controlplane up`: where its program comes from, how it is started, and
//! the lines spoken with it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use super::ControlPlaneError;
use super::options::{Component, ControlPlaneOptions};
use crate::absence::Absent;
use crate::tools;

/// The program keeps the time limits itself; ours only guards against its silence.
const GRACE: Duration = Duration::from_secs(15);
/// Unread answers. Nobody sends a second command before the first is answered, so more
/// than a few mean that the protocol is broken; the reader then waits.
const ANSWERS_MAX: usize = 16;

/// What the line `READY kubeconfig=FILE server=URL seconds=S` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) kubeconfig: PathBuf,
    pub(super) server: String,
}

impl Ready {
    fn parse(line: &str) -> Option<Self> {
        let fields = line.strip_prefix("READY ")?;
        let field = |key: &str| {
            fields
                .split(' ')
                .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
        };
        Some(Self {
            kubeconfig: field("kubeconfig")?.into(),
            server: field("server")?.to_owned(),
        })
    }
}

/// The running program. Dropping it closes its standard input, which ends it and its
/// components, and waits for that.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    timeout: Duration,
}

impl Process {
    /// Starts the program and waits for its READY line.
    pub(super) fn start(options: &ControlPlaneOptions) -> Result<(Self, Ready), ControlPlaneError> {
        let program = program()?;
        let folder = tempfile::Builder::new()
            .prefix("millwright-controlplane-")
            .tempdir()
            .map_err(|error| failed(format!("temporary folder: {error}")))?
            // The program removes it: it lives until the end of the components, and a
            // test that is killed runs no destructors.
            .keep();
        let mut command = command(&program, &folder, options)?;
        let mut child = command
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", program.display())))?;
        let stdin = child.stdin.take();
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| failed("no standard output".to_owned()))?;
        let (sender, answers) = mpsc::sync_channel(ANSWERS_MAX);
        std::thread::spawn(move || forward(stdout, &sender));
        let process = Self {
            child,
            stdin,
            answers,
            timeout: options.timeout + GRACE,
        };
        let line = process.next_line("start")?;
        let ready =
            Ready::parse(&line).ok_or_else(|| failed(format!("no READY line but {line:?}")))?;
        Ok((process, ready))
    }

    /// Sends a command, blocks until it is answered, and returns what follows the command
    /// in the answer.
    pub(super) fn ask(
        &mut self,
        verb: &str,
        component: Component,
    ) -> Result<String, ControlPlaneError> {
        let command = format!("{verb} {component}");
        let stdin = self
            .stdin
            .as_mut()
            .ok_or_else(|| failed("it is being stopped".to_owned()))?;
        // A pipe takes one short line without blocking, or breaks.
        writeln!(stdin, "{command}")
            .and_then(|()| stdin.flush())
            .map_err(|error| failed(format!("{command}: {error}")))?;
        let line = self.next_line(&command)?;
        match line
            .strip_prefix("DONE ")
            .and_then(|line| line.strip_prefix(&command))
        {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(failed(line)),
        }
    }

    fn next_line(&self, command: &str) -> Result<String, ControlPlaneError> {
        self.answers.recv_timeout(self.timeout).map_err(|error| {
            failed(match error {
                RecvTimeoutError::Timeout => format!("{command}: no answer in {:?}", self.timeout),
                RecvTimeoutError::Disconnected => {
                    format!("{command}: it ended; standard error says why")
                }
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn failed(why: String) -> ControlPlaneError {
    ControlPlaneError::Failed(why)
}

/// Hands lines on until the program or the receiver ends.
fn forward(stdout: ChildStdout, answers: &SyncSender<String>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if answers.send(line).is_err() {
            return;
        }
    }
}

fn program() -> Result<PathBuf, Absent> {
    tools::path_printed_by(&tools::folder().join("controlplane/ensure.sh"), &[])
        .map_err(|why| Absent(format!("no control plane: {why}")))
}

fn command(
    program: &Path,
    folder: &Path,
    options: &ControlPlaneOptions,
) -> Result<Command, ControlPlaneError> {
    let mut command = Command::new(program);
    command
        .arg("up")
        .arg("--watch-stdin")
        .arg("--dir")
        .arg(folder);
    command.args(options.flags());
    if std::env::var_os("MILLWRIGHT_TESTS_KEEP").is_none() {
        command.arg("--remove-dir");
    }
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
        command.arg("--assets").arg(assets);
    }
    if let Some(text) = options.token_file() {
        let file = folder.join("tokens.csv");
        std::fs::write(&file, text)
            .map_err(|error| failed(format!("{}: {error}", file.display())))?;
        command.arg("--token-auth-file").arg(file);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_read() {
        let line = "READY kubeconfig=/a/b server=https://127.0.0.1:1 seconds=3.1";
        let ready = Ready {
            kubeconfig: "/a/b".into(),
            server: "https://127.0.0.1:1".to_owned(),
        };
        assert_eq!(Ready::parse(line), Some(ready));
        assert_eq!(Ready::parse("READY server=x"), None);
        assert_eq!(Ready::parse("DONE stop etcd"), None);
    }
}
