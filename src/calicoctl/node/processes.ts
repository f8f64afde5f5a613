// Lists the processes of this host, which are those in the same network namespace: several hosts of a lab share one machine.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

export interface RunningProcess {
  readonly pid: number;
  readonly words: readonly string[];
}

export function processesHere(): readonly RunningProcess[] {
  const own = namespaceOf("self");
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && namespaceOf(name) === own)
    .flatMap((name) => {
      try {
        const words = readFileSync(`/proc/${name}/cmdline`, "utf8")
          .split("\0")
          .filter((word) => word !== "");
        return words.length === 0 ? [] : [{ pid: Number(name), words }];
      } catch {
        return []; // it has ended
      }
    });
}

function namespaceOf(pid: string): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    return undefined;
  }
}

/** Whether the process is Felix, under any of its program names. */
export const isFelix = ({ words: [program = "", flag = ""] }: RunningProcess): boolean =>
  /(^|\/)calico-felix$/.test(program) || (/(^|\/)calico-node$/.test(program) && /^--?felix$/.test(flag));

export function requireRoot(): void {
  if (process.getuid?.() !== 0) throw new RootRequired();
}
class RootRequired extends Error {
  constructor() {
    super("Need super user privileges: Operation not permitted");
  }
}
