// Sends log lines to the local syslog daemon through its datagram socket. https://www.rfc-editor.org/rfc/rfc3164
import { errnoName } from "./errno.ts";
import { checkSyscall, SyscallError } from "./kernel-error.ts";
import * as sys from "./sys.ts";

const FACILITY_USER = 1;
const SYSLOG_SEVERITY = { critical: 2, error: 3, warning: 4, info: 6, debug: 7 } as const;

export interface Syslog extends Disposable {
  /** Never blocks: a line that the daemon cannot take now is lost. */
  write(severity: keyof typeof SYSLOG_SEVERITY, line: string): void;
}

/** @throws SyscallError if no daemon listens */
export function openSyslog(tag: string, path = "/dev/log"): Syslog {
  const fd = checkSyscall(sys.socket(sys.AF_UNIX, sys.SOCK_DGRAM | sys.SOCK_CLOEXEC, 0), "open a socket for syslog");
  const name = Buffer.from(path);
  const address = sys.allocate(2 + name.length + 1);
  new DataView(address.buffer).setUint16(0, sys.AF_UNIX, true);
  address.set(name, 2);
  const connected = sys.connect(fd, address);
  if (connected < 0) {
    sys.close(fd);
    throw new SyscallError(`connect to ${path}`, errnoName(-connected));
  }
  return {
    write(severity, line) {
      const text = Buffer.from(`<${FACILITY_USER * 8 + SYSLOG_SEVERITY[severity]}>${tag}[${process.pid}]: ${line}`);
      const bytes = sys.allocate(text.length);
      bytes.set(text);
      sys.send(fd, bytes, bytes.length, sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL);
    },
    [Symbol.dispose]() {
      sys.close(fd);
    },
  };
}
