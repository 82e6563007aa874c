package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// rules are what the services ask of a resource's inputs, by type, beyond the
// properties and their types.
var rules = map[string]func(*inputs){}

func init() {
	maps.Copy(rules, map[string]func(*inputs){
		"aws:lambda/function:Function":                                         lambdaFunction,
		"aws:lambda/functionUrl:FunctionUrl":                                   lambdaFunctionURL,
		"aws:lambda/permission:Permission":                                     lambdaPermission,
		"aws:lambda/eventSourceMapping:EventSourceMapping":                     lambdaEventSource,
		"aws:lambda/alias:Alias":                                               lambdaAlias,
		"aws:lambda/provisionedConcurrencyConfig:ProvisionedConcurrencyConfig": lambdaProvisioned,
		"aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig":       lambdaInvokeConfig,
		"aws:lambda/invocation:Invocation":                                     lambdaInvocation,
		"aws:sfn/stateMachine:StateMachine":                                    stateMachine,
		"aws:sfn/alias:Alias":                                                  stateMachineAlias,
		"aws:ecr/repository:Repository":                                        ecrRepository,
		"aws:ecr/lifecyclePolicy:LifecyclePolicy":                              ecrLifecycle,
		"aws:ecr/repositoryPolicy:RepositoryPolicy":                            ecrPolicy,
		"aws:appautoscaling/target:Target":                                     scalingTarget,
		"aws:appautoscaling/scheduledAction:ScheduledAction":                   scalingSchedule,
		"aws:appautoscaling/policy:Policy":                                     scalingPolicy,
	})
}

const (
	lambdaName   = `[a-zA-Z0-9-_]{1,64}`
	functionRef  = `(?:arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:)?[a-zA-Z0-9-_]{1,64}(?::(?:\$LATEST|[a-zA-Z0-9-_]+))?`
	ecrImage     = `\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com/[a-z0-9._/-]+(?::[A-Za-z0-9._-]+)?(?:@sha256:[0-9a-f]{64})?`
	registryName = `(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*`
)

// reservedVariables are names of the environment that Lambda keeps to itself.
var reservedVariables = regexp.MustCompile(`^(?:_HANDLER|_X_AMZN_TRACE_ID|AWS_DEFAULT_REGION|AWS_REGION|AWS_EXECUTION_ENV|` +
	`AWS_LAMBDA_.*|AWS_ACCESS_KEY.*|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN|LAMBDA_TASK_ROOT|LAMBDA_RUNTIME_DIR|TZ)$`)

var variableName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]+$`)

func lambdaFunction(in *inputs) {
	in.match("name", lambdaName, "1 to 64 letters, digits, - and _")
	in.length("description", 0, 256)
	in.between("memorySize", 128, 10240)
	in.between("timeout", 1, 900)
	in.between("ephemeralStorage.size", 512, 10240)
	in.between("reservedConcurrentExecutions", -1, 1_000_000)
	in.count("architectures", 1, 1)
	in.allOneOf("architectures", "arm64", "x86_64")
	in.oneOf("packageType", "Image", "Zip")
	in.arn("role", "iam")
	in.arn("kmsKeyArn", "kms")
	in.arn("deadLetterConfig.targetArn", "sqs", "sns")
	in.oneOf("tracingConfig.mode", "PassThrough", "Active")
	if packageType, _ := in.text("packageType"); packageType == "Image" {
		in.require("imageUri")
		in.forbid("with packageType Image", "handler", "runtime", "layers", "code", "s3Bucket", "s3Key")
		in.match("imageUri", ecrImage, "an image in ECR")
	} else {
		in.forbid("without packageType Image", "imageUri", "imageConfig")
		in.require("handler", "runtime")
		in.one("code", "s3Bucket")
	}

	variables, _ := in.get("environment.variables")
	total := 0
	object, _ := variables.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, _ := object[name].(string)
		total += len(name) + len(value)
		switch {
		case reservedVariables.MatchString(name):
			in.fault("environment.variables."+name, "is a name that Lambda keeps to itself")
		case !variableName.MatchString(name):
			in.fault("environment.variables."+name, "is no name of a variable: a letter, then letters, digits and _")
		}
	}
	if total > 4096 {
		in.fault("environment.variables", "have %d bytes, want at most 4096", total)
	}

	in.arn("fileSystemConfig.arn", "elasticfilesystem")
	in.match("fileSystemConfig.localMountPath", `/mnt/[a-zA-Z0-9-_.]+`, "a path such as /mnt/models")
	if in.has("fileSystemConfig") && !in.has("vpcConfig") {
		in.fault("fileSystemConfig", "needs a vpcConfig")
	}
	if in.has("vpcConfig") {
		in.require("vpcConfig.subnetIds", "vpcConfig.securityGroupIds")
		in.count("vpcConfig.subnetIds", 1, 16)
		in.count("vpcConfig.securityGroupIds", 1, 5)
	}

	in.oneOf("loggingConfig.logFormat", "Text", "JSON")
	in.oneOf("loggingConfig.applicationLogLevel", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
	in.oneOf("loggingConfig.systemLogLevel", "DEBUG", "INFO", "WARN")
	in.match("loggingConfig.logGroup", logGroupName, "the name of a log group")
	if format, _ := in.text("loggingConfig.logFormat"); in.has("loggingConfig") && format != "JSON" {
		in.forbid("with logFormat Text", "loggingConfig.applicationLogLevel", "loggingConfig.systemLogLevel")
	}
}

func lambdaFunctionURL(in *inputs) {
	in.oneOf("authorizationType", "AWS_IAM", "NONE")
	in.oneOf("invokeMode", "BUFFERED", "RESPONSE_STREAM")
	in.match("functionName", functionRef, "a function")
	in.between("cors.maxAge", 0, 86400)
	in.allOneOf("cors.allowMethods", "GET", "PUT", "HEAD", "POST", "PATCH", "DELETE", "*")
}

func lambdaPermission(in *inputs) {
	in.oneOf("action", "lambda:InvokeFunction", "lambda:InvokeFunctionUrl", "lambda:GetFunction")
	in.match("principal", `\*|\d{12}|[a-z0-9.-]+\.amazonaws\.com|arn:aws[a-z-]*:iam::\d{12}:\S+`, "a service, an account or *")
	in.match("statementId", `[a-zA-Z0-9-_]{1,100}`, "1 to 100 letters, digits, - and _")
	in.match("function", functionRef, "a function")
	in.match("sourceAccount", `\d{12}`, "an account")
	in.arn("sourceArn")
	in.oneOf("functionUrlAuthType", "AWS_IAM", "NONE")
	if action, ok := in.text("action"); ok && action != "lambda:InvokeFunctionUrl" {
		in.forbid("with action "+action, "functionUrlAuthType")
	} else if ok {
		in.require("functionUrlAuthType")
	}
	if principal, ok := in.text("principal"); ok && strings.HasSuffix(principal, ".amazonaws.com") && !in.has("sourceArn") && !in.has("sourceAccount") {
		in.fault("principal", "is a service without sourceArn or sourceAccount: anyone's %s could call", principal)
	}
}

func lambdaEventSource(in *inputs) {
	in.arn("eventSourceArn", "sqs", "dynamodb", "kinesis")
	in.match("functionName", functionRef, "a function")
	in.between("batchSize", 1, 10_000)
	in.between("maximumBatchingWindowInSeconds", 0, 300)
	in.between("scalingConfig.maximumConcurrency", 2, 1000)
	in.allOneOf("functionResponseTypes", "ReportBatchItemFailures")
	window, _ := in.number("maximumBatchingWindowInSeconds")
	if size, ok := in.number("batchSize"); ok && size > 10 && window < 1 && in.known("maximumBatchingWindowInSeconds") {
		in.fault("batchSize", "%v needs a maximumBatchingWindowInSeconds of at least 1", size)
	}
}

func lambdaAlias(in *inputs) {
	in.match("name", `[a-zA-Z0-9-_]*[a-zA-Z-_][a-zA-Z0-9-_]*`, "1 to 128 letters, digits, - and _, not digits alone")
	in.length("name", 1, 128)
	in.match("functionName", functionRef, "a function")
	in.match("functionVersion", `\$LATEST|[0-9]+`, "a version")
}

func lambdaProvisioned(in *inputs) {
	in.match("functionName", functionRef, "a function")
	in.between("provisionedConcurrentExecutions", 1, 1_000_000)
	if qualifier, ok := in.text("qualifier"); ok && qualifier == "$LATEST" {
		in.fault("qualifier", "is $LATEST, want a version or an alias")
	}
}

func lambdaInvokeConfig(in *inputs) {
	in.match("functionName", functionRef, "a function")
	in.between("maximumEventAgeInSeconds", 60, 21600)
	in.between("maximumRetryAttempts", 0, 2)
}

func lambdaInvocation(in *inputs) {
	in.match("functionName", functionRef, "a function")
	in.document("input")
}

func stateMachine(in *inputs) {
	in.match("name", `[a-zA-Z0-9-_]{1,80}`, "1 to 80 letters, digits, - and _")
	in.oneOf("type", "STANDARD", "EXPRESS")
	in.arn("roleArn", "iam")
	machineType, _ := in.text("type")
	in.statesDefinition("definition", machineType)
	in.oneOf("loggingConfiguration.level", "ALL", "ERROR", "FATAL", "OFF")
	if destination, ok := in.text("loggingConfiguration.logDestination"); ok {
		in.arn("loggingConfiguration.logDestination", "logs")
		if !strings.HasSuffix(destination, ":*") {
			in.fault("loggingConfiguration.logDestination", "%q does not end with :*", destination)
		}
	}
	if level, ok := in.text("loggingConfiguration.level"); ok && level != "OFF" {
		in.require("loggingConfiguration.logDestination")
	}
	in.oneOf("encryptionConfiguration.type", "AWS_OWNED_KEY", "CUSTOMER_MANAGED_KMS_KEY")
}

func stateMachineAlias(in *inputs) {
	in.match("name", `[0-9A-Za-z_.-]*[A-Za-z_.-][0-9A-Za-z_.-]*`, "letters, digits and _.-")
}

func ecrRepository(in *inputs) {
	in.match("name", registryName, "lower-case words with . _ - and /")
	in.length("name", 2, 256)
	in.oneOf("imageTagMutability", "MUTABLE", "IMMUTABLE")
	for _, c := range in.each("encryptionConfigurations") {
		c.oneOf("encryptionType", "AES256", "KMS")
	}
}

func ecrPolicy(in *inputs) {
	in.match("repository", registryName, "a repository")
	in.policy("policy", bareResourcePolicy)
}

func ecrLifecycle(in *inputs) {
	in.match("repository", registryName, "a repository")
	doc, ok := in.document("policy")
	if !ok {
		return
	}
	object, _ := doc.(map[string]any)
	list := asList(object["rules"])
	if len(list) == 0 || len(object) != 1 {
		in.fault("policy", "is not an object with rules alone")
	}
	priorities := map[float64]bool{}
	for _, element := range list {
		values, _ := element.(map[string]any)
		rule := &inputs{in.name, values, "policy", in.faults}
		rule.require("rulePriority", "selection.tagStatus", "selection.countType", "selection.countNumber", "action.type")
		priority, _ := rule.number("rulePriority")
		rule.between("rulePriority", 1, 1e9)
		if priorities[priority] {
			rule.fault("rulePriority", "%v comes twice", priority)
		}
		priorities[priority] = true
		rule.oneOf("action.type", "expire")
		rule.oneOf("selection.tagStatus", "tagged", "untagged", "any")
		rule.oneOf("selection.countType", "imageCountMoreThan", "sinceImagePushed")
		rule.between("selection.countNumber", 1, 1e9)
		if countType, _ := rule.text("selection.countType"); countType == "sinceImagePushed" {
			rule.require("selection.countUnit")
			rule.oneOf("selection.countUnit", "days")
		} else {
			rule.forbid("with imageCountMoreThan", "selection.countUnit")
		}
		if status, _ := rule.text("selection.tagStatus"); status == "tagged" {
			rule.one("selection.tagPrefixList", "selection.tagPatternList")
		} else {
			rule.forbid("unless tagStatus is tagged", "selection.tagPrefixList", "selection.tagPatternList")
		}
	}
}

func scalingTarget(in *inputs) {
	in.oneOf("serviceNamespace", "lambda", "dynamodb")
	in.between("minCapacity", 0, 1e9)
	low, _ := in.number("minCapacity")
	if high, ok := in.number("maxCapacity"); ok && high < low {
		in.fault("maxCapacity", "%v is under minCapacity %v", high, low)
	}
	in.match("scalableDimension", `lambda:function:ProvisionedConcurrency|dynamodb:(?:table|index):(?:Read|Write)CapacityUnits`, "a dimension of Lambda or DynamoDB")
}

func scalingSchedule(in *inputs) { in.schedule("schedule") }

func scalingPolicy(in *inputs) { in.oneOf("policyType", "StepScaling", "TargetTrackingScaling") }
