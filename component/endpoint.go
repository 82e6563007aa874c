package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// endpoint answers single requests as they are written.
type endpoint struct {
	function *lambda.Function
	url      *lambda.FunctionUrl
}

// endpointAlias is the alias that has the provisioned workers.
const endpointAlias = "live"

// endpoint builds the streaming endpoint, or nothing where none was asked for.
func (s *swarm) endpoint(model *recipe) (*endpoint, error) {
	if !s.Endpoint {
		return nil, nil
	}
	e := &endpoint{}
	var err error
	e.function, err = s.function(function{
		what: "endpoint", handler: "stream", description: "answers single requests as they are written",
		memoryMib: s.MemoryMib, timeoutSec: s.TimeoutSec, tmpMib: s.EphemeralStorageMib, reserved: s.EndpointConcurrency,
		env: model.env, allow: model.allow,
	})
	if err != nil {
		return nil, err
	}
	var alias *lambda.Alias
	if s.ProvisionedConcurrency > 0 {
		alias, err = lambda.NewAlias(s.ctx, s.child("endpoint-alias"), &lambda.AliasArgs{
			Name: pulumi.String(endpointAlias), FunctionName: e.function.Name, FunctionVersion: e.function.Version,
			Description: pulumi.String("the version with provisioned workers"),
		}, s.opts()...)
		if err != nil {
			return nil, err
		}
		if _, err := lambda.NewProvisionedConcurrencyConfig(s.ctx, s.child("endpoint-provisioned"), &lambda.ProvisionedConcurrencyConfigArgs{
			FunctionName: e.function.Name, Qualifier: alias.Name, ProvisionedConcurrentExecutions: pulumi.Int(s.ProvisionedConcurrency),
		}, s.opts()...); err != nil {
			return nil, err
		}
	}
	e.url, err = s.functionURL("endpoint", e.function, alias, s.EndpointAuth, "RESPONSE_STREAM")
	return e, err
}

// functionURL creates the URL of a function, or of its alias where that is not
// nil, and the two permissions that a call of it needs since October 2025.
func (s *swarm) functionURL(what string, f *lambda.Function, alias *lambda.Alias, auth, mode string) (*lambda.FunctionUrl, error) {
	var qualifier pulumi.StringPtrInput
	if alias != nil {
		qualifier = alias.Name.ToStringPtrOutput()
	}
	url, err := lambda.NewFunctionUrl(s.ctx, s.child(what+"-url"), &lambda.FunctionUrlArgs{
		FunctionName: f.Name, Qualifier: qualifier, AuthorizationType: pulumi.String(auth), InvokeMode: pulumi.String(mode),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	// With IAM, the account's own identities that have the permission; else anyone.
	principal := pulumi.StringInput(pulumi.String("*"))
	if auth == AuthIAM {
		principal = s.account
	}
	if _, err := lambda.NewPermission(s.ctx, s.child(what+"-url-permission"), &lambda.PermissionArgs{
		Action: pulumi.String("lambda:InvokeFunctionUrl"), Function: f.Name, Qualifier: qualifier, Principal: principal, FunctionUrlAuthType: pulumi.String(auth),
	}, s.opts()...); err != nil {
		return nil, err
	}
	// The provider has no InvokedViaFunctionUrl, so this permits calls by the API
	// too. Where the URL is open, that is open to nothing more than the URL is.
	_, err = lambda.NewPermission(s.ctx, s.child(what+"-permission"), &lambda.PermissionArgs{
		Action: pulumi.String("lambda:InvokeFunction"), Function: f.Name, Qualifier: qualifier, Principal: principal,
	}, s.opts()...)
	return url, err
}
