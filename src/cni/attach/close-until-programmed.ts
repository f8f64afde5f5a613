// Drops all packets of workloads until Felix has written its rules after boot. Without this, pods that start before Felix
// would communicate without policy, and their connections would remain when policy comes.
//
// The guard table shows whether Felix has written its rules since boot (kernel/netfilter/guard-table.ts). The guard file shows that the
// agent of this host will open what is closed here (kernel/netfilter/guard-file.ts).
import {
  closeWorkloads,
  GUARD_TABLE,
  type GuardState,
  guardState,
  hasErrno,
  hasNftablesPolicy,
  Nft,
  readGuardFile,
} from "../../kernel/index.ts";
import { describeError } from "../../lib/log/log.ts";
import type { CniContext } from "../context.ts";
import { CniError, TRY_AGAIN_LATER } from "../error.ts";

/** Call before an interface is brought up. */
export async function closeUntilProgrammed({ conf, log }: Pick<CniContext, "conf" | "log">): Promise<void> {
  if (conf.nodenameFileOptional) return;
  const file = readGuardFile(conf.nodenameFile);
  if (file.kind === "absent") return;
  using nftables = openNftables();
  if (nftables === undefined) {
    if (file.kind === "valid" && !file.hasRulesOfOtherAgent) await closeByIptables(file.interfacePrefixes);
    return;
  }
  const { nft, state } = nftables;
  if (file.kind === "stale") {
    // Another agent has started since the host was closed. It does not know the table.
    if (state === "closed") nft.commit([{ op: "deleteTable", table: GUARD_TABLE }]);
    return;
  }
  if (state !== "absent" || file.hasRulesOfOtherAgent) return;
  if (hasNftablesPolicy(nft, 4) || hasNftablesPolicy(nft, 6)) return;
  try {
    closeWorkloads(nft, file.interfacePrefixes);
    log.warn("Felix has written no rules since boot; packets of workloads are dropped until it does");
  } catch (error) {
    if (!hasErrno(error, "EEXIST")) throw error; // Felix or another call of the plugin has written the table
  }
}

/** Undefined if the kernel has no nf_tables. */
function openNftables(): ({ readonly nft: Nft; readonly state: GuardState } & Disposable) | undefined {
  using own = new DisposableStack();
  try {
    const nft = own.use(new Nft());
    const state = guardState(nft);
    const moved = own.move();
    return { nft, state, [Symbol.dispose]: () => moved.dispose() };
  } catch {
    return undefined;
  }
}

async function closeByIptables(interfacePrefixes: readonly string[]): Promise<void> {
  const { closeWithIptables, legacyStores } = await import("./close-with-iptables.ts");
  try {
    await closeWithIptables(legacyStores(), interfacePrefixes);
  } catch (error) {
    throw new CniError(
      TRY_AGAIN_LATER,
      `Felix has written no rules since boot, and the host cannot be closed until it does: ${describeError(error)}`,
    );
  }
}
