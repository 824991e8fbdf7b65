//! Kernel interfaces that no agent needs, closed: new namespaces, mounts, keys, modules, BPF, other processes' memory.
//!
//! A list of what is denied, not of what is allowed: agents run compilers, debuggers and whatever a project brings.
//! Denied calls fail with an error and kill nobody.

use nix::libc;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offsets in `struct seccomp_data`, for the lower halves of arguments on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// From here on the numbers are those of the x32 interface: the same calls under other numbers.
const X32: u32 = 0x4000_0000;
/// Every `CLONE_NEW…` flag.
const NAMESPACES: u32 = 0x7e02_0000;

/// EPERM for all of these.
const DENIED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// ENOSYS: whoever asks has another way. `clone3` hides its flags from this filter.
const UNKNOWN: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup];

/// As `bwrap --seccomp` reads it: instructions of classic BPF.
pub(crate) fn program() -> Vec<u8> {
    instructions().iter().flat_map(|instruction| instruction.bytes()).collect()
}

#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    /// How many instructions to skip if the comparison holds, and if not.
    yes: u8,
    no: u8,
    value: u32,
}

impl Instruction {
    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.code.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[self.yes, self.no]);
        bytes[4..].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}

fn instructions() -> Vec<Instruction> {
    let plain = |code, value| Instruction { code, yes: 0, no: 0, value };
    let compare = |code, value, yes, no| Instruction { code, yes, no, value };
    let (permission, unknown) = (ERRNO | errno(libc::EPERM), ERRNO | errno(libc::ENOSYS));
    let mut program = vec![
        plain(LOAD, ARCHITECTURE),
        compare(JUMP_EQUAL, OURS, 1, 0),
        plain(RETURN, unknown),
        plain(LOAD, NUMBER),
        compare(JUMP_AT_LEAST, X32, 0, 1),
        plain(RETURN, unknown),
    ];
    let answers = [(DENIED, permission), (UNKNOWN, unknown)];
    for (call, answer) in
        answers.iter().flat_map(|(calls, answer)| calls.iter().map(move |call| (call, answer)))
    {
        program.extend([compare(JUMP_EQUAL, number(*call), 0, 1), plain(RETURN, *answer)]);
    }
    program.extend([
        compare(JUMP_EQUAL, number(libc::SYS_clone), 0, 4),
        plain(LOAD, FIRST_ARGUMENT),
        compare(JUMP_ANY_BIT, NAMESPACES, 0, 1),
        plain(RETURN, permission),
        plain(RETURN, ALLOW),
        // A terminal that is shared with the host would take typed commands.
        compare(JUMP_EQUAL, number(libc::SYS_ioctl), 0, 4),
        plain(LOAD, SECOND_ARGUMENT),
        compare(JUMP_EQUAL, low(libc::TIOCSTI), 1, 0),
        compare(JUMP_EQUAL, low(libc::TIOCLINUX), 0, 1),
        plain(RETURN, permission),
        plain(RETURN, ALLOW),
    ]);
    program
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn errno(errno: i32) -> u32 {
    u32::try_from(errno).unwrap_or(0)
}

/// The kernel takes an ioctl's request as 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "requests have 32 bits")]
fn low(request: libc::Ioctl) -> u32 {
    request as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    #[track_caller]
    fn check(architecture: u32, call: u32, arguments: [u32; 2], expected: u32) {
        let program = instructions();
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let Instruction { code, yes, no, value } = program[at];
            let mut jump = |holds: bool| at += 1 + usize::from(if holds { yes } else { no });
            match code {
                LOAD => {
                    accumulator = match value {
                        NUMBER => call,
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => arguments[0],
                        SECOND_ARGUMENT => arguments[1],
                        other => panic!("offset {other}"),
                    };
                    at += 1;
                }
                JUMP_EQUAL => jump(accumulator == value),
                JUMP_AT_LEAST => jump(accumulator >= value),
                JUMP_ANY_BIT => jump(accumulator & value != 0),
                RETURN => return assert_eq!(value, expected, "call {call}"),
                other => panic!("code {other}"),
            }
        }
    }

    #[test]
    fn what_no_agent_needs_fails_and_the_rest_passes() {
        let (permission, unknown) = (ERRNO | errno(libc::EPERM), ERRNO | errno(libc::ENOSYS));
        for call in DENIED {
            check(OURS, number(*call), [0; 2], permission);
        }
        for call in UNKNOWN {
            check(OURS, number(*call), [0; 2], unknown);
        }
        for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_ptrace, libc::SYS_exit_group] {
            check(OURS, number(call), [0; 2], ALLOW);
        }
    }

    #[test]
    fn threads_may_be_made_and_namespaces_may_not() {
        let flags = |flags: i32| [u32::try_from(flags).unwrap(), 0];
        check(OURS, number(libc::SYS_clone), flags(libc::CLONE_VM | libc::CLONE_THREAD), ALLOW);
        check(OURS, number(libc::SYS_clone), flags(libc::CLONE_NEWUSER), ERRNO | errno(libc::EPERM));
        check(
            OURS,
            number(libc::SYS_clone),
            flags(libc::CLONE_NEWNS | libc::SIGCHLD),
            ERRNO | errno(libc::EPERM),
        );
    }

    #[test]
    fn other_numberings_of_the_same_calls_are_unknown() {
        let unknown = ERRNO | errno(libc::ENOSYS);
        check(OURS, X32 + number(libc::SYS_mount), [0; 2], unknown);
        check(0x4000_0003, 21, [0; 2], unknown);
    }

    #[test]
    fn nobody_types_into_a_terminal_for_others() {
        check(OURS, number(libc::SYS_ioctl), [0, low(libc::TIOCSTI)], ERRNO | errno(libc::EPERM));
        check(OURS, number(libc::SYS_ioctl), [0, low(libc::TCGETS)], ALLOW);
    }
}
