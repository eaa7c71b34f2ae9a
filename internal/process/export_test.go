package process

// Known returns the number of remembered processes.
func Known(r *Resolver) int { return len(r.known) }
