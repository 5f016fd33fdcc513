//! The browser: which one, and how it comes to an address that nobody else may see.
//!
//! What a program is called with, everybody on this machine can read (`ps`). So it is called with the name of
//! a file that only this user can read, and that leads to the address.

use crate::output;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

/// What opens files as this desktop does.
const OPENER: &str = "xdg-open";

/// Opens `address`, or says how it can be opened. The file that leads there lasts as long as what is
/// returned.
pub fn open(address: &str, port: u16) -> Option<NamedTempFile> {
    if let Some(connection) = std::env::var_os("SSH_CONNECTION") {
        let tunnel = tunnel(&connection.to_string_lossy(), port);
        output::say(format_args!("engraft: over ssh: run this on your machine, and open the address there"));
        output::say(format_args!("  {tunnel}"));
        return None;
    }
    let browser = std::env::var_os("BROWSER").filter(|name| !name.is_empty());
    let browser = browser.unwrap_or_else(|| OsString::from(OPENER));
    let leads = match leads_to(address) {
        Ok(leads) => leads,
        Err(err) => {
            output::warn(&format!("cannot write a file that leads to the address: {err}"), Some(BY_HAND));
            return None;
        }
    };
    let mut command = Command::new(&browser);
    command.arg(leads.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            // It ends at once, or with the browser; what it returns is known then.
            std::thread::spawn(move || {
                if child.wait().is_ok_and(|status| !status.success()) {
                    let what = format!("{} did not open the address", browser.display());
                    output::warn(&what, Some(BY_HAND));
                }
            });
            Some(leads)
        }
        Err(err) => {
            let what = format!("cannot start {}: {err}", browser.display());
            output::warn(&what, Some(BY_HAND));
            None
        }
    }
}

const BY_HAND: &str = "open the address by hand; BROWSER names a browser";

/// A file that leads to `address`, for this user alone.
fn leads_to(address: &str) -> std::io::Result<NamedTempFile> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let folder = own.unwrap_or_else(std::env::temp_dir);
    // It is made with the rights 0600.
    let mut file = tempfile::Builder::new().prefix("engraft-view-").suffix(".html").tempfile_in(folder)?;
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><title>engraft</title>\
         <meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={address}\"><a href=\"{address}\">engraft</a>"
    )?;
    file.flush()?;
    Ok(file)
}

/// The command that makes `port` reachable where somebody came from, of what ssh says of the connection: the
/// address and port of that machine, then of ours.
fn tunnel(connection: &str, port: u16) -> String {
    let words: Vec<&str> = connection.split(' ').collect();
    let is_host = |word: &&&str| word.chars().all(|c| c.is_ascii_hexdigit() || ".:%".contains(c));
    let host = words.get(2).filter(is_host).copied().unwrap_or("THIS-MACHINE");
    let at = words.get(3).filter(|port| **port != "22" && port.parse::<u16>().is_ok());
    let at = at.map_or_else(String::new, |port| format!("-p {port} "));
    format!("ssh {at}-N -L {port}:127.0.0.1:{port} {host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_tunnel_leads_to_where_the_connection_came_in() {
        let said = |connection| tunnel(connection, 41000);
        assert_eq!(said("10.0.0.5 50000 10.0.0.1 22"), "ssh -N -L 41000:127.0.0.1:41000 10.0.0.1");
        assert_eq!(said("::1 50000 fe80::1 2222"), "ssh -p 2222 -N -L 41000:127.0.0.1:41000 fe80::1");
        assert_eq!(said("a; rm c$(d) 22"), "ssh -N -L 41000:127.0.0.1:41000 THIS-MACHINE");
    }

    #[test]
    fn the_file_that_leads_there_is_for_this_user_alone() {
        let file = leads_to("http://127.0.0.1:1/0123/").expect("written");
        let mode = file.path().metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(file.path()).expect("readable");
        assert!(text.contains("0;url=http://127.0.0.1:1/0123/\""), "{text}");
    }
}
