package component

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/servicequotas"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// serviceQuotas are those of AccountQuotas that Service Quotas knows, by
// service and code. Lambda's memory and Firehose's limits are not there.
var serviceQuotas = map[string]struct{ service, code string }{
	"lambdaConcurrency":       {"lambda", "L-B99A9384"},
	"sesRecipientsPer24Hours": {"ses", "L-804C8AE8"},
	"sesRecipientsPerSec":     {"ses", "L-CDEF9B6B"},
	"sfnTransitionsPerSec":    {"states", "L-AD9B4E93"},
}

// withQuotas returns the arguments with what Service Quotas says where
// AccountQuotas says nothing, if they ask for that. What can't be read is
// missing, and named in unread.
func withQuotas(ctx *pulumi.Context, args *Args, provider []pulumi.InvokeOption) (read *Args, unread []string) {
	if args == nil || !args.ReadAccountQuotas {
		return args, nil
	}
	full := *args
	full.AccountQuotas = maps.Clone(args.AccountQuotas)
	if full.AccountQuotas == nil {
		full.AccountQuotas = map[string]float64{}
	}
	for _, name := range slices.Sorted(maps.Keys(serviceQuotas)) {
		if _, given := full.AccountQuotas[name]; given {
			continue
		}
		quota := serviceQuotas[name]
		if strings.HasPrefix(name, "ses") && args.Sender == "" {
			continue // no mail
		}
		value, err := serviceQuota(ctx, quota.service, quota.code, provider)
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s (%s/%s): %s", name, quota.service, quota.code, firstLine(err)))
			continue
		}
		full.AccountQuotas[name] = value
	}
	return &full, unread
}

// unreadQuotas is the warning about quotas that could not be read.
func unreadQuotas(unread []string) string {
	return "Some of the account's quotas could not be read; those of an account that has asked for nothing are taken instead. Allow " +
		"servicequotas:GetServiceQuota to whoever deploys, or give them in accountQuotas.\n  " + strings.Join(unread, "\n  ")
}

// firstLine is an error without the stack of calls that providers append.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// quotaKey is one quota of the default provider, during one run of a program.
type quotaKey struct {
	ctx           *pulumi.Context
	service, code string
}

// quotasRead keeps what was read: the swarms of a program share an account. An
// explicit provider may be another account's, so it is always asked.
var quotasRead sync.Map

type quotaAnswer struct {
	value float64
	err   error
}

func serviceQuota(ctx *pulumi.Context, service, code string, provider []pulumi.InvokeOption) (float64, error) {
	ask := func() quotaAnswer {
		quota, err := servicequotas.LookupServiceQuota(ctx, &servicequotas.LookupServiceQuotaArgs{ServiceCode: service, QuotaCode: &code}, provider...)
		if err != nil {
			return quotaAnswer{err: err}
		}
		return quotaAnswer{value: quota.Value}
	}
	if len(provider) == 0 {
		once, _ := quotasRead.LoadOrStore(quotaKey{ctx, service, code}, sync.OnceValue(ask))
		ask = once.(func() quotaAnswer)
	}
	answer := ask()
	return answer.value, answer.err
}
