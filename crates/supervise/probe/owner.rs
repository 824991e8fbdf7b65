//! An owner of children. One command per line, its fields split by tabs; one line in answer.

use std::fs;
use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use supervise::{Child, Command, Spawner};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::runtime::Builder;

use crate::say;

pub(crate) fn run() -> io::Result<()> {
    let mut owner = Owner { spawner: Spawner::start()?, children: Vec::new() };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        say(&runtime.block_on(owner.answer(&fields))?)?;
    }
    Ok(())
}

struct Owner {
    spawner: Spawner,
    /// By the order in which they were started. None when dropped.
    children: Vec<Option<Child>>,
}

impl Owner {
    async fn answer(&mut self, fields: &[&str]) -> io::Result<String> {
        match *fields {
            ["spawn", cwd, env, program, ref args @ ..] => {
                Ok(self.spawn(&command(cwd, env, program, args)).await)
            }
            ["many", count, program, ref args @ ..] => {
                self.many(number(count)?, &command("", "", program, args)).await
            }
            ["cycle", count] => self.cycle(number(count)?).await,
            ["descriptors"] => Ok(fs::read_dir("/proc/self/fd")?.count().to_string()),
            ["drop", child] => {
                drop(self.children.get_mut(number(child)?).and_then(Option::take));
                Ok("ok".to_owned())
            }
            [verb, child] => act(verb, self.child(child)?).await,
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn child(&mut self, index: &str) -> io::Result<&mut Child> {
        let child = self.children.get_mut(number(index)?).and_then(Option::as_mut);
        child.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    async fn spawn(&mut self, command: &Command) -> String {
        let mut child = match self.spawner.spawn(command.clone()) {
            Ok(child) => child,
            Err(error) => return format!("refused {error}"),
        };
        let answer = match child.control.started().await {
            Ok(pid) => format!("started {pid}"),
            Err(error) => error.to_string(),
        };
        self.children.push(Some(child));
        answer
    }

    /// Starts all at once, and then waits for each. Says how long one `spawn` call took, in µs, and one start.
    async fn many(&mut self, count: usize, command: &Command) -> io::Result<String> {
        let begin = Instant::now();
        let mut children = Vec::new();
        for _ in 0..count {
            children.push(self.spawner.spawn(command.clone())?);
        }
        let called = begin.elapsed();
        for mut child in children {
            child.control.started().await.map_err(io::Error::other)?;
            self.children.push(Some(child));
        }
        Ok(format!("{}\t{}", each(called, count), each(begin.elapsed(), count)))
    }

    /// One after the other, each until nothing of it is left. Says how long a start took, in µs, and a whole life.
    async fn cycle(&mut self, count: usize) -> io::Result<String> {
        let begin = Instant::now();
        let mut starts = Duration::ZERO;
        for _ in 0..count {
            let asked = Instant::now();
            let mut child = self.spawner.spawn(command("", "", "true", &[]))?;
            child.control.started().await.map_err(io::Error::other)?;
            starts += asked.elapsed();
            child.control.gone().await;
        }
        Ok(format!("{}\t{}", each(starts, count), each(begin.elapsed(), count)))
    }
}

async fn act(verb: &str, child: &mut Child) -> io::Result<String> {
    match verb {
        "exited" => return Ok(child.control.exited().await.to_string()),
        "gone" => child.control.gone().await,
        "terminate" => child.control.terminate(),
        "kill" => child.control.kill(),
        "line" => {
            let mut line = String::new();
            BufReader::new(&mut child.stdout).read_line(&mut line).await?;
            return Ok(line.trim_end().to_owned());
        }
        "output" => {
            let mut output = String::new();
            child.stdout.read_to_string(&mut output).await?;
            return Ok(output.trim_end().replace('\n', "|"));
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok("ok".to_owned())
}

fn command(cwd: &str, env: &str, program: &str, args: &[&str]) -> Command {
    let variables = env.split(';').filter_map(|variable| variable.split_once('='));
    Command {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        env: variables.map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: Some(cwd).filter(|cwd| !cwd.is_empty()).map(Into::into),
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn each(total: Duration, count: usize) -> u128 {
    total.as_micros() / count.max(1) as u128
}
