package accounting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxAccounts is the maximum number of accounts: one per owner and entity. A node has 110 pods by default and up to
	// 500. The attributors limit the owners of one entity.
	maxAccounts = 4096
	// dormancy is how long the account of an owner that is no longer reported is kept. The counter then continues if
	// only the kubelet, the driver or the session was unavailable, and the owner was there all the time.
	dormancy = 15 * time.Minute
)

// accountKey identifies an owner of an entity: a pod, or a job by its labels.
type accountKey struct {
	entity         gpu.Identity
	namespace, pod string
	job            string
}

func keyOf(e *sharedDevice, o *gpu.Owner) accountKey {
	key := accountKey{entity: e.id, namespace: o.Namespace, pod: o.Pod}
	if o.Pod == "" {
		key.job = fmt.Sprintf("%q", append([]gpu.Label{{Value: o.Container}}, o.Labels...))
	}
	return key
}

// entityOwner is one owner of an entity.
type entityOwner struct {
	key       accountKey
	owner     *gpu.Owner // the first, if it has several devices of the entity
	share     float64
	uid       string
	container string // "" if there are several
}

// assign opens an account for every owner of every entity. Owners that have an account keep it; others get what room is
// left.
func (s *Accountant) assign(owners *gpu.Owners) {
	before, now := s.dropped, s.cycle.Now
	s.owners, s.infos, s.dropped = owners, nil, map[accountKey]bool{}
	lists := make([][]entityOwner, len(s.entities))
	for i, e := range s.entities {
		use := owners.UseOf(e.row)
		s.infos = appendInfos(s.infos, e, &use)
		if len(use.Owners) == 0 && !use.Incomplete && e.gpu != nil {
			use = owners.UseOf(e.gpu.row) // the owner of a GPU also owns its instances that have no other owner
		}
		if e.unknown = use.Incomplete; !e.unknown {
			lists[i] = ownersOf(e, &use)
		}
		e.shared = len(lists[i]) > 1
		for _, h := range lists[i] {
			if a := s.accounts[h.key]; a != nil {
				a.keep(h.uid, e.totals.seen)
				a.seen = now
			}
		}
	}
	for i, e := range s.entities {
		s.openAccounts(e, lists[i])
	}
	for key := range s.dropped {
		if !before[key] {
			s.ownersDropped.Inc()
		}
	}
}

// ownersOf returns the owners of an entity, each once. Jobs count only if no pod owns the entity, because a job that
// runs in a pod is that pod.
func ownersOf(e *sharedDevice, use *gpu.Use) (list []entityOwner) {
	owners := use.Owners
	if use.HasPod() {
		owners = slices.DeleteFunc(slices.Clone(owners), func(o gpu.Owner) bool { return o.Pod == "" })
	}
	shares := sharesOf(use, owners)
	at := make(map[accountKey]int, len(owners))
	for i := range owners {
		o := &owners[i]
		key := keyOf(e, o)
		j, ok := at[key]
		if !ok {
			j = len(list)
			at[key] = j
			list = append(list, entityOwner{key: key, owner: o, container: o.Container})
		}
		h := &list[j]
		h.share += shares[i]
		h.uid = cmp.Or(h.uid, o.PodUID)
		if o.Container != h.container {
			h.container = "" // the container of a process is unknown
		}
	}
	return list
}

// sharesOf returns the fraction of an entity that each of its owners holds. It is the share that its claim consumes,
// split among pods with the same claim. If that is unknown for any owner, all owners get equal fractions.
func sharesOf(use *gpu.Use, owners []gpu.Owner) []float64 {
	if slices.ContainsFunc(owners, func(o gpu.Owner) bool { return o.Part == 0 }) {
		return slices.Repeat([]float64{1 / float64(max(use.Replicas, len(owners)))}, len(owners))
	}
	holders := make(map[string]float64, len(owners))
	for i := range owners {
		holders[owners[i].Replica]++
	}
	shares, sum := make([]float64, len(owners)), 0.0
	for i := range owners {
		shares[i] = owners[i].Part / holders[owners[i].Replica]
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= max(sum, 1)
	}
	return shares
}

// keep resets the account if its owner is another pod of the same name. The UID is different, or no UID is known and
// the pod was not an owner in the latest cycle with known owners.
func (a *ownerUsage) keep(uid string, known time.Time) {
	if a.uid != "" && a.uid != uid && (uid != "" || !a.seen.Equal(known)) {
		*a = ownerUsage{}
	}
}

// openAccounts assigns accounts to the owners of an entity. It opens new ones while there is room, for which it drops
// accounts of absent owners.
func (s *Accountant) openAccounts(e *sharedDevice, list []entityOwner) {
	now := s.cycle.Now
	clear(e.byUID)
	e.accounts = nil
	for i := range list {
		h := &list[i]
		a := s.accounts[h.key]
		if a == nil {
			if len(s.accounts) >= maxAccounts {
				maps.DeleteFunc(s.accounts, func(_ accountKey, a *ownerUsage) bool { return !a.seen.Equal(now) })
			}
			if len(s.accounts) >= maxAccounts {
				s.dropped[h.key] = true
				continue
			}
			a = &ownerUsage{}
			s.accounts[h.key] = a
		}
		a.uid, a.share, a.seen = cmp.Or(h.uid, a.uid), h.share, now
		a.labels = ownerLabels(e, h.owner, h.container)
		e.accounts = append(e.accounts, a)
		if a.uid != "" && e.byUID[a.uid] == nil {
			e.byUID[a.uid] = a
		}
	}
}

// sweep drops accounts and totals that have not been seen for a long time.
func (s *Accountant) sweep() {
	isOld := func(seen time.Time) bool { return s.cycle.Now.Sub(seen) > dormancy }
	maps.DeleteFunc(s.accounts, func(_ accountKey, a *ownerUsage) bool { return isOld(a.seen) })
	maps.DeleteFunc(s.totals, func(_ gpu.Identity, l *deviceTotals) bool {
		return isOld(l.seen) && !slices.ContainsFunc(s.entities, func(e *sharedDevice) bool { return e.totals == l })
	})
}
