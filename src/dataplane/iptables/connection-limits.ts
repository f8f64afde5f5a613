// Whether the kernel counts connections for iptables: tried with a chain of ours that nothing leads to.
import type { IptablesStore } from "../../kernel/index.ts";
import { matchText } from "./text.ts";

const PROBE = "cali-probe-limits";
const table = (...lines: string[]) => `*filter\n${lines.join("\n")}\nCOMMIT\n`;

/** No answer but a clear one counts: where not even a harmless rule is taken, the fault lies elsewhere. */
export async function takesConnectionLimits(store: IptablesStore, signal: AbortSignal): Promise<boolean> {
  const restore = (...lines: string[]) =>
    store.restore(table(...lines), signal).then(
      () => true,
      (error: unknown) => {
        if (signal.aborted) throw error;
        return false;
      },
    );
  const limit = matchText({ kind: "connectionsAbove", count: 1 }, { version: store.family });
  if (!(await restore(`:${PROBE} - -`, `-A ${PROBE} -p tcp --jump RETURN`))) return true;
  const isTaken = await restore(`-A ${PROBE} ${limit} --jump RETURN`);
  await restore(`:${PROBE} - -`);
  await restore(`--delete-chain ${PROBE}`);
  return isTaken;
}
