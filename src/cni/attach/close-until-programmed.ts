// Drops all packets of workloads until Felix has written its rules after boot. Without this, pods that start before Felix
// would communicate without policy, and their connections would continue after policy is in place.
//
// The guard table shows whether Felix has written its rules since boot (kernel/netfilter/guard-table.ts). The guard file shows
// that this host's agent will remove the drop rules written here (kernel/netfilter/guard-file.ts).
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

/** Must be called before an interface is brought up. */
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
    // Another agent, which does not use the guard table, has started since the host was closed.
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
      `Felix has written no rules since boot, and the rules that drop packets of workloads until then cannot be written: ${describeError(error)}`,
    );
  }
}
