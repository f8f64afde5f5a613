// What plugin and service say to each other: a line of JSON each way, then a text as it came: the network configuration
// the runtime wrote, and what the runtime shall read. The reply's last byte is a newline that is not part of it: without
// it the reply was cut short. Each side makes sure that the other is of its own user.
//
// While the service works it sends a space every second, before the reply. From one that is silent for four the plugin goes
// away, asks once more if it was the prologue that asked, and then says "try again later": to do the service's work while it
// may wake up and go on would make two owners. Whose plugin has gone is not begun (`RequestServer`); what was begun is ended
// before anything else is done about the same attachment (`service.ts`).
//
// There are two clients: `service-client.ts`, and before the runtime starts `scripts/prologue/`, which knows of
// replies only those whose head is 0 or 1 and leaves all others to the first. Types alone: the plugin loads as little as
// it can, so each side has its own copy of the path, and the compiler holds them equal; a test holds the third one's.

export type ServiceSocket = "/var/run/calico/cni.sock";

/** The line before the configuration. */
export interface RequestHead {
  /** Variables that begin with CNI_, and FELIX_INTERFACEPREFIX; nothing else of the environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** The line before what goes to standard output: the exit code. */
export type ReplyHead =
  | 0
  | 1
  /** Not for the service: the plugin does it by itself. */
  | { readonly declined: string };
